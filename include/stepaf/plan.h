/* SPDX-License-Identifier: Apache-2.0 */
/* Plans, attention side: a push_pull compiled once and started many times.
 *
 * "FFN rank" here is one of this attention rank's peers: every FFN rank of the mesh, which with
 * STEPAF_MESH=lane is those of its lane (stepaf_n_peers, stepaf_peer_rank).
 *
 * One start is one operation: at each FFN rank it appears as one batch, once all its tensors have
 * landed. A plan has as many slots as the smallest depth of its keys; operation n (from 0) uses
 * slot n mod depth. Results stay in place until the plan is started depth more times. */
#ifndef STEPAF_PLAN_H
#define STEPAF_PLAN_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STEPAF_PLAN_SCATTER = 1 << 0, /* each FFN rank gets its own slice of every push tensor */
    STEPAF_PLAN_STREAM = 1 << 1,  /* operations are enqueued on CUDA streams, see stepaf/stream.h */
    STEPAF_PLAN_ANY = 1 << 2 /* FFN ranks, with STREAM: a batch is of one worker, any of them */
};

enum {
    STEPAF_START_WAIT = 1 << 0,      /* wait for a free slot, at most timeout_us */
    STEPAF_START_SKIP_LOST = 1 << 1, /* leave lost FFN ranks out instead of failing */
};

enum {
    STEPAF_START_PARAM_FLAGS = 1 << 0,
    STEPAF_START_PARAM_TIMEOUT = 1 << 1, /* default: STEPAF_TIMEOUT_DEFAULT */
    STEPAF_START_PARAM_PUSH = 1 << 2,    /* push and n_push; default: as planned */
    STEPAF_START_PARAM_ALL = (1 << 3) - 1
};

/** What one start changes against its plan. Only fields named in @a field_mask are read. */
typedef struct stepaf_start_params {
    uint64_t field_mask; /* STEPAF_START_PARAM_*; unknown bits are STEPAF_ERR_INVALID */
    int64_t timeout_us;  /* with STEPAF_START_WAIT; 0 or negative: default */
    uint32_t flags;      /* STEPAF_START_WAIT, STEPAF_START_SKIP_LOST */
    int n_push;          /* entries of push */
    /** NULL: as planned. Broadcast: n_push entries. Scatter: F * n_push entries, server-major
     *  (entry f * n_push + i is what peer f gets of tensor i); a rank whose entries are all of 0
     *  bytes is skipped: it sees no batch and its pulls complete with 0 bytes. An entry's
     *  key must be the planned one; data may point to other registered memory; bytes may be
     *  smaller than planned, never larger. */
    const stepaf_tensor_t *push;
} stepaf_start_params_t;

/** Compile a push_pull. May be called before commit (usable after it) or after.
 *
 *  @param push    n_push tensors, 0 .. STEPAF_MAX_TENSORS. Broadcast: every FFN rank gets the
 *                 same bytes. Scatter: planned data and bytes are defaults and upper bounds for
 *                 each rank's slice. Keys distinct within the plan.
 *  @param pull    n_pull destinations, server-major: entry f * B + i is filled by peer f (in a
 *                 full mesh, FFN rank f), F peers in all, B = n_pull / F, 0 .. STEPAF_MAX_TENSORS. With a depth of D, slot s of a
 *                 destination is at data + s * max_bytes of its key. Ranges must not overlap.
 *  @param flags   STEPAF_PLAN_SCATTER, STEPAF_PLAN_STREAM, both or neither.
 *  @param plan_p  ended by stepaf_plan_destroy or stepaf_finalize.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_INVALID (counts, flags,
 *  neither push nor pull, overlap, a key twice, wrong direction); STEPAF_ERR_PULLS (n_pull is not
 *  a multiple of the number of peers: some would have nowhere to answer); STEPAF_ERR_KEY;
 *  STEPAF_ERR_SIZE (more than the key's max_bytes); STEPAF_ERR_UNREGISTERED;
 *  STEPAF_ERR_UNSUPPORTED (with STEPAF_PLAN_STREAM, a destination of another kind of memory than its
 *  key's, or host memory that cannot be pinned for the GPU); STEPAF_ERR_STATE (host memory would have to
 *  be pinned while streams wait for peers by way of the host); STEPAF_ERR_LIMIT (65,535 plans; with
 *  STEPAF_PLAN_ANY, more than 64 tensors each way over all peers); STEPAF_ERR_NO_MEMORY. Nothing changed
 *  on failure. Does not block. */
STEPAF_API stepaf_status_t stepaf_plan_create(stepaf_context_h ctx, const stepaf_tensor_t *push,
                                              int n_push, const stepaf_tensor_t *pull, int n_pull,
                                              uint32_t flags, stepaf_plan_h *plan_p);

/** FFN ranks: compile the other half of a stream plan: what is received, and where answers come from.
 *
 *  @param keys       n_keys push keys, 0 .. STEPAF_MAX_TENSORS, in the order of the attention
 *                    ranks' plans.
 *  @param answers    n_answers sources, peer by peer: entry a * B + i is answer i to peer a, P peers in
 *                    all, B = n_answers / P. With a depth of D, slot s of a source is at data +
 *                    s * max_bytes of its key; bytes is the most that is sent.
 *  @param flags      STEPAF_PLAN_STREAM, perhaps with STEPAF_PLAN_ANY.
 *  @param plan_p     ended by stepaf_plan_destroy or stepaf_finalize.
 *  @return as stepaf_plan_create; STEPAF_ERR_INVALID also without STEPAF_PLAN_STREAM. Nothing changed
 *  on failure. Does not block. */
STEPAF_API stepaf_status_t stepaf_plan_create_ffn(stepaf_context_h ctx, const uint64_t *keys,
                                                  int n_keys, const stepaf_tensor_t *answers,
                                                  int n_answers, uint32_t flags,
                                                  stepaf_plan_h *plan_p);

/** End a plan.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (an operation is in flight, or one of
 *  its batches is not released yet, or another thread waits in a start of it, or, by way of the host, a stream has not come by its last
 *  operation: nothing changed). Does not block. */
STEPAF_API stepaf_status_t stepaf_plan_destroy(stepaf_plan_h plan);

/** Return the slots of @a plan (the smallest depth of its keys); 0 for an invalid handle. */
STEPAF_API unsigned stepaf_plan_depth(stepaf_plan_h plan);

/** Start an operation: push the planned tensors to the FFN ranks and expect their answers.
 *
 *  A source in GPU memory must be complete: synchronize with the streams that write it before.
 *  @param request_p  valid until the plan has been started depth more times. Source buffers may
 *                    be reused when stepaf_request_sent says so; they must not change before.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (not committed since the plan was
 *  made, with keys or memory that need it, or an FFN rank receives a key in GPU memory on streams, or a commit has failed halfway); STEPAF_ERR_WOULD_BLOCK (an FFN rank still holds the
 *  slot's last batch, or its last operation is in flight); STEPAF_ERR_PEER_LOST (an FFN rank that
 *  this operation needs); STEPAF_ERR_TRANSPORT (sources in GPU memory, and the GPU has failed). Nothing
 *  was sent on failure. Never blocks. */
STEPAF_API stepaf_status_t stepaf_start(stepaf_plan_h plan, stepaf_request_h *request_p);

/** Start an operation that differs from its plan in sizes, sources or behaviour.
 *  @param params  not kept.
 *  @return as stepaf_start; STEPAF_ERR_INVALID (flags, counts, keys); STEPAF_ERR_SIZE;
 *  STEPAF_ERR_UNREGISTERED; STEPAF_ERR_UNSUPPORTED (a source in GPU memory that no commit has made
 *  ready); STEPAF_ERR_TIMEOUT (with STEPAF_START_WAIT: no slot came free).
 *  Nothing was sent on failure. Blocks only with STEPAF_START_WAIT. */
STEPAF_API stepaf_status_t stepaf_start_with(stepaf_plan_h plan,
                                             const stepaf_start_params_t *params,
                                             stepaf_request_h *request_p);

/** Push and pull in one call: the same as a plan made for these keys and destinations, kept by
 *  the context for the next such call, and started with these sources and sizes. For callers that
 *  do not mind the look-up (tens of nanoseconds where few are kept, or calls come in turns).
 *
 *  What is kept ends when one of its keys is withdrawn; once its requests have been waited for, also when
 *  memory that it names is freed or deregistered, or when 1,024 have been kept and used since.
 *  @return as stepaf_plan_create and stepaf_start. Never blocks. */
STEPAF_API stepaf_status_t stepaf_push_pull(stepaf_context_h ctx, const stepaf_tensor_t *push,
                                            int n_push, const stepaf_tensor_t *pull, int n_pull,
                                            stepaf_request_h *request_p);

#ifdef __cplusplus
}
#endif
#endif
