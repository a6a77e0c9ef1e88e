/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of the rank whose clock is the common one, and synchronization at commit. */
#ifndef STEPAF_CORE_CLOCK_H
#define STEPAF_CORE_CLOCK_H

#include "core/ctx.h"

stepaf_status_t stepaf_clock_sync(struct stepaf_ctx *ctx, int64_t deadline_ns);

#endif
