/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces provider_mlx5.c in a build without libmlx5. */
#include "transport/verbs/provider.h"

const struct stepaf_verbs_lag_ops stepaf_verbs_lag_real = {0};
