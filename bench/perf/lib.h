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
    /* attention: plans by stage and place (the places of one microbatch share a plan), requests
     * by place */
    stepaf_plan_h *plans[PERF_MAX_STAGES];
    stepaf_request_h *requests;
    stepaf_tensor_t *slices; /* scatter: by microbatch, FFN rank and tensor */
    uint32_t started;        /* operations of each plan in the previous blocks */
    /* FFN: the answer for each place, and batches from stepaf_recv */
    stepaf_tensor_t *answers; /* by attention rank and place */
    stepaf_batch_h *batches;
    int n_batches;
    int is_plain;       /* an attention rank has one operation with an answer at a time */
    int *microbatch_of; /* by attention rank and plan number; -1: not seen yet */
    /* state of the check, see lib_check.c */
    uint64_t wrong_bytes;
    uint64_t answered; /* checked answers so far, for --corrupt */
    uint32_t *turns;   /* by place: operations started in this block */
    uint64_t *digests; /* by place and FFN rank: of the pushed bytes */
};

/* Make context, keys, buffers and plans of a row, and commit. Collective; -1 with a sentence on
 * every rank. */
int perf_lib_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place,
                  struct perf_lib *lib_p);

void perf_lib_close(struct perf_lib *lib);

/* A block of timed operations: perf_contender's run. */
int perf_lib_run(void *self, struct perf_block *block);

/* Run a block of operations that are not timed but verified: wrong bytes are counted in @a self. */
int perf_lib_run_checked(void *self, struct perf_block *block);

/* Start stage @a stage of place @a place; waits if necessary until its buffers are free. */
int perf_lib_start(void *self, unsigned place, int stage);
int perf_lib_wait(void *self, unsigned place, int stage);

/* FFN side: receive @a n_batches batches, and call @a handle for each. */
typedef int (*perf_lib_handle_t)(struct perf_lib *lib, stepaf_batch_h batch);
int perf_lib_serve(struct perf_lib *lib, uint64_t n_batches, perf_lib_handle_t handle);

/* Keys encode microbatch, direction and tensor. */
static inline uint64_t perf_lib_key(unsigned microbatch, stepaf_direction_t direction, int tensor)
{
    return (uint64_t)microbatch << 4 | (uint64_t)direction << 3 | (uint64_t)tensor;
}

/* Return the place in its attention rank's window that a batch belongs to; -1 with a sentence
 * for a batch that no rank of this run can have sent. */
int perf_lib_batch_place(struct perf_lib *lib, stepaf_batch_h batch,
                         const stepaf_batch_info_t *info);

/* Capacity of microbatch_of in plan numbers: the plans of one rank, counted from 0. */
static inline uint32_t perf_lib_plans(const struct perf_case *c)
{
    return c->microbatches * (uint32_t)c->n_stages;
}

/* Return the number of batches that this FFN rank gets from all attention ranks in @a ops
 * operations of each. */
static inline uint64_t perf_lib_batches(const struct perf_lib *lib, uint64_t ops)
{
    if (!perf_case_active(lib->c, lib->place->index))
        return 0;
    return ops * (uint64_t)lib->c->n_stages * (uint64_t)lib->c->attn;
}

#endif
