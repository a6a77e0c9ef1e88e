/* SPDX-License-Identifier: Apache-2.0 */
/* From the GPU's clock to this rank's. */
#ifndef STEPAF_GPU_TIMES_CLOCK_H
#define STEPAF_GPU_TIMES_CLOCK_H

#include "core/ctx.h"

struct stepaf_gpu_clock;

/* Make it, and compare the clocks for the first time. */
stepaf_status_t stepaf_gpu_clock_begin(struct stepaf_ctx *ctx);
void stepaf_gpu_clock_free(struct stepaf_ctx *ctx);
/* Go on with a comparison, or begin one if it is time; never waits for the GPU for long. */
void stepaf_gpu_clock_keep(struct stepaf_ctx *ctx, uint64_t now);
/* Whether times of the GPU are known in ticks; what @a time of a timestamp, of these days, is in ticks; and how
 * far that is off, at most. */
bool stepaf_gpu_clock_is_known(const struct stepaf_ctx *ctx);
uint64_t stepaf_gpu_clock_ticks(const struct stepaf_ctx *ctx, uint64_t time);
int64_t stepaf_gpu_clock_bound_ns(const struct stepaf_ctx *ctx);

#endif
