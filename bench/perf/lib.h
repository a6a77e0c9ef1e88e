/* SPDX-License-Identifier: Apache-2.0 */
/* The library as a contender: a context, keys and plans for one row. */
#ifndef PERF_LIB_H
#define PERF_LIB_H

#include <stepaf/stepaf.h>

#include "attend.h"
#include "buffers.h"
#include "case.h"
#include "contender.h"
#include "job.h"
#include "place.h"

struct perf_lib {
    const struct perf_options *options;
    const struct perf_case *c;
    const struct perf_place *place;
    stepaf_context_h ctx;
    struct perf_buffers buffers;
    /* attention: plans by stage and place (those of one microbatch are one), requests by place */
    stepaf_plan_h *plans[PERF_MAX_STAGES];
    stepaf_request_h *requests;
    stepaf_tensor_t *slices; /* scatter: by microbatch, FFN rank and tensor */
    uint32_t started;        /* operations of each plan in the blocks before this one */
    /* FFN: what to answer to which place, and batches from stepaf_recv */
    stepaf_tensor_t *answers; /* by attention rank and place */
    stepaf_batch_h *batches;
    int n_batches;
    int is_plain;       /* one attention rank has one operation with an answer at a time */
    int *microbatch_of; /* by attention rank and plan number; -1: not seen yet */
    /* what the check finds and needs, see lib_check.c */
    uint64_t wrong_bytes;
    uint64_t answered; /* checked answers so far, for --corrupt */
    uint32_t *turns;   /* by place: operations started in this block */
    uint64_t *digests; /* by place and FFN rank: of what was pushed */
};

/* Make context, keys, buffers and plans of a row, and commit. Collective; -1 with a sentence on
 * every rank. */
int perf_lib_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place,
                  struct perf_lib *lib_p);

void perf_lib_close(struct perf_lib *lib);

/* A block of timed operations: perf_contender's run. */
int perf_lib_run(void *self, struct perf_block *block);

/* A block of operations that are not timed but verified: wrong bytes are added up in @a self. */
int perf_lib_run_checked(void *self, struct perf_block *block);

/* Start stage @a stage of place @a place: waits, if it must, until its buffers are free. */
int perf_lib_start(void *self, unsigned place, int stage);
int perf_lib_wait(void *self, unsigned place, int stage);

/* FFN side: take @a n_batches batches, each by @a handle. */
typedef int (*perf_lib_handle_t)(struct perf_lib *lib, stepaf_batch_h batch);
int perf_lib_serve(struct perf_lib *lib, uint64_t n_batches, perf_lib_handle_t handle);

/* Keys tell microbatch, direction and tensor. */
static inline uint64_t perf_lib_key(unsigned microbatch, stepaf_direction_t direction, int tensor)
{
    return (uint64_t)microbatch << 4 | (uint64_t)direction << 3 | (uint64_t)tensor;
}

/* The place of its attention rank's window that a batch belongs to; -1 with a sentence for one
 * that no rank of this run can have sent. */
int perf_lib_batch_place(struct perf_lib *lib, stepaf_batch_h batch,
                         const stepaf_batch_info_t *info);

/* Plan numbers that microbatch_of has room for: those of one rank's plans, counted from 0. */
static inline uint32_t perf_lib_plans(const struct perf_case *c)
{
    return c->microbatches * (uint32_t)c->n_stages;
}

/* Batches that this FFN rank gets from all attention ranks in @a ops operations of each. */
static inline uint64_t perf_lib_batches(const struct perf_lib *lib, uint64_t ops)
{
    if (!perf_case_active(lib->c, lib->place->index))
        return 0;
    return ops * (uint64_t)lib->c->n_stages * (uint64_t)lib->c->attn;
}

#endif
