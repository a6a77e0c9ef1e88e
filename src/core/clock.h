/* SPDX-License-Identifier: Apache-2.0 */
/* The common clock of traces. */
#ifndef STEPAF_CORE_CLOCK_H
#define STEPAF_CORE_CLOCK_H

#include "core/ctx.h"

stepaf_status_t stepaf_clock_sync(struct stepaf_ctx *ctx, int64_t deadline_ns);
void stepaf_clock_ping(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_clock_pong(struct stepaf_peer *peer, const struct stepaf_msg *msg);

#endif
