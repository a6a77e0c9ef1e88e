/* SPDX-License-Identifier: Apache-2.0 */
/* FFN ranks that take the next batch of any worker: shared by the files of the test. */
#ifndef STEPAF_TEST_GPU_ANY_H
#define STEPAF_TEST_GPU_ANY_H

#include "gpu/exchange.h"
#include "gpu/kernels_any.h"

enum { ANY_PLANS = 4 };

/* One side of a plan. What an FFN rank needs is not set at an attention rank. */
struct any_lane {
    struct gx_plan plan;
    long long ops;                /* of each worker, since the commit */
    struct gx_any_counts *counts; /* in GPU memory, as the next three */
    stepaf_origin_t *queue;       /* batches that are received and not answered */
    uint32_t *sizes;              /* of what each worker pushes */
    unsigned char *source;        /* of all answers; NULL: each has its own */
    struct gx_any_work in, out;
};

/* ---- any_lane.c ---- */

/* Make plan @a id; after the commit, prepare for at most @a ops operations with sizes of their
 * own. */
bool any_make(struct hs_job *job, int id, struct any_lane *lane);
bool any_ready(struct any_lane *lane, long long ops);
/* From now on all tensors have their largest size. */
void any_fix(struct any_lane *lane);

/* FFN ranks: enqueue. The batch is number @a k of those that are not answered, and is looked at;
 * its answer, with fresh bytes. */
bool any_take(struct any_lane *lane, int k);
bool any_give(struct any_lane *lane, int k);
/* The answers to the first @a n, one right behind the other: all bytes are made before, where
 * answers have sources of their own. */
bool any_give_all(struct any_lane *lane, int n);
/* Wait for the plan's stream; false, too, if the plan has failed, which lets its stream go on. */
bool any_sync(struct any_lane *lane);
/* Take and give @a total batches, up to depth of them at a time. */
bool any_serve(struct any_lane *lane, long long total);
/* Attention ranks: @a n operations, depth of them under way, each begun late by a while that
 * depends on the rank: up to @a delay_us. */
bool any_attend(struct any_lane *lane, long long n, long long delay_us);
/* All have come, no byte was wrong, and every worker's in its order. */
bool any_verify(struct any_lane *lane);

/* ---- any_fault.c ---- */

void any_kill(struct any_lane *lane);
void any_silent(struct any_lane *lane);

#endif
