/* SPDX-License-Identifier: Apache-2.0 */
/* A plain exchange for tests that are about something else: plans of one push and one pull tensor
 * each, whose bytes follow from plan, ranks and sequence. */
#ifndef STEPAF_TEST_FIXTURE_H
#define STEPAF_TEST_FIXTURE_H

#include "harness.h"

enum { FX_IDS = 16, FX_DEPTH = 4, FX_PUSH_KEY = 100, FX_PULL_KEY = 200 };

enum { FX_BOTH = 0, FX_NO_PULL = 1 << 0, FX_NO_PUSH = 1 << 1, FX_SCATTER = 1 << 2 };

/* Attention side: a plan and its memory. */
struct fx_plan {
    struct hs_job *job;
    stepaf_plan_h handle;
    int id;
    unsigned kind, depth;
    size_t bytes;
    unsigned char *source;           /* depth x peers pieces of bytes */
    unsigned char *target;           /* peers x depth pieces */
    uint32_t next;                   /* sequence of the next operation */
    stepaf_request_h last[FX_DEPTH]; /* by slot: NULL, or what may still read its source */
    int n_answers;                   /* of each start; 0: as the plan says */
    int64_t patience_us;             /* likewise; -1: as the plan says */
    int skip;                        /* scatter: this peer gets nothing; -1: all get theirs */
};

/* Declare the keys of plan @a id, on every rank. */
bool fx_declare(struct hs_job *job, int id, size_t bytes, unsigned depth);

/* Attention ranks: make plan @a id. */
bool fx_plan_make(struct hs_job *job, int id, size_t bytes, unsigned depth, unsigned kind,
                  struct fx_plan *plan);
/* Fill the sources and start, with STEPAF_START_* flags. */
stepaf_status_t fx_start(struct fx_plan *plan, uint32_t flags, stepaf_request_h *request_p);
/* Compare what operation @a sequence has brought from peer @a peer, -1: from all. */
bool fx_verify(const struct fx_plan *plan, uint32_t sequence, int peer);
/* Start, wait, verify. */
bool fx_exchange(struct fx_plan *plan);

/* FFN ranks: memory for answers; then look at a batch and answer it. */
bool fx_serve_open(struct hs_job *job, size_t bytes);
bool fx_look(struct hs_job *job, stepaf_batch_h batch);
stepaf_status_t fx_answer(struct hs_job *job, stepaf_batch_h batch, uint32_t flags);
/* Receive @a n batches from anyone, look at each, answer and release it. */
bool fx_serve(struct hs_job *job, int n);

/* Declare plans 0 .. n-1, commit, and make them (before the commit) at attention ranks. */
bool fx_open(struct hs_job *job, int n, size_t bytes, unsigned depth, unsigned kind,
             struct fx_plan *plans);

#endif
