/* SPDX-License-Identifier: Apache-2.0 */
/* Convert times of the GPU's clock to ticks of this rank. */
#ifndef STEPAF_GPU_TIMES_CLOCK_H
#define STEPAF_GPU_TIMES_CLOCK_H

#include "core/ctx.h"

struct stepaf_gpu_clock;

/* Make the clock, and compare the clocks for the first time. */
stepaf_status_t stepaf_gpu_clock_begin(struct stepaf_ctx *ctx);
void stepaf_gpu_clock_free(struct stepaf_ctx *ctx);
/* Continue a comparison, or begin one if it is time. Never waits for the GPU for long. */
void stepaf_gpu_clock_keep(struct stepaf_ctx *ctx, uint64_t now);
/* is_known: Return whether times of the GPU can be converted. ticks: Convert the recent @a time of
 * a timestamp to ticks. bound_ns: Return the maximum error of this. */
bool stepaf_gpu_clock_is_known(const struct stepaf_ctx *ctx);
uint64_t stepaf_gpu_clock_ticks(const struct stepaf_ctx *ctx, uint64_t time);
int64_t stepaf_gpu_clock_bound_ns(const struct stepaf_ctx *ctx);

#endif
