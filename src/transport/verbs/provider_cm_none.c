/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces provider_cm.c in a build without librdmacm. */
#include "transport/verbs/provider.h"

const struct stepaf_verbs_cm_ops stepaf_verbs_cm_real = {0};
