/* SPDX-License-Identifier: Apache-2.0 */
/* Read the timestamps of streams, and make of them what the host leaves of its own operations. */
#ifndef STEPAF_GPU_TIMES_READ_H
#define STEPAF_GPU_TIMES_READ_H

#include "core/op.h"

/* Read the available timestamps of all plans. */
void stepaf_times_read(struct stepaf_ctx *ctx);
/* Return what is known of an operation that has a request; NULL if nothing is known yet, or it is
 * forgotten. */
const struct stepaf_op *stepaf_times_find(const struct stepaf_op *op);
/* The `unlooked` function of the feature. */
bool stepaf_times_unlooked(const struct stepaf_peer *peer, uint32_t plan, uint32_t seq,
                           uint64_t *ticks_p);

#endif
