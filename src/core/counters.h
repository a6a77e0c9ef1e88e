/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of a context. */
#ifndef STEPAF_CORE_COUNTERS_H
#define STEPAF_CORE_COUNTERS_H

#include <stepaf/counters.h>

struct stepaf_ctx;

/* Return the counters, including those that peers and transports keep. */
stepaf_counters_t stepaf_core_counters(const struct stepaf_ctx *ctx);

#endif
