/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: a push_pull that is compiled once and started many times.
 *
 * "FFN rank" stands for a peer of this attention rank: every FFN rank of the mesh; with
 * STEPAF_MESH=lane, every FFN rank of its lane (stepaf_n_peers, stepaf_peer_rank).
 *
 * One start is one operation. Each FFN rank receives it as one batch, once all of the batch's
 * tensors have arrived. A plan has as many slots as the smallest depth of its keys; operation n,
 * counted from 0, uses slot n mod depth. Results stay in place until the plan has been started
 * depth more times. */
#ifndef STEPAF_PLAN_H
#define STEPAF_PLAN_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STEPAF_PLAN_SCATTER = 1 << 0, /* each FFN rank receives its own slice of every push tensor */
    STEPAF_PLAN_STREAM = 1 << 1,  /* operations are enqueued on CUDA streams, see stepaf/stream.h */
    STEPAF_PLAN_ANY = 1 << 2,     /* stepaf_plan_create_ffn: a batch comes from any one peer */
    /* With STEPAF_PLAN_STREAM: the caller leaves the sources of an operation unchanged until its
     * wait, and those of answers until the next batch in the slot is received. Then no stream waits
     * for a NIC that reads the sources in GPU memory. */
    STEPAF_PLAN_KEEP_SOURCES = 1 << 3
};

enum {
    STEPAF_START_WAIT = 1 << 0,      /* wait for a free slot, at most timeout_us */
    STEPAF_START_SKIP_LOST = 1 << 1, /* skip lost FFN ranks while any other is left */
};

enum {
    STEPAF_START_PARAM_FLAGS = 1 << 0,
    STEPAF_START_PARAM_TIMEOUT = 1 << 1,  /* default: STEPAF_TIMEOUT_DEFAULT */
    STEPAF_START_PARAM_PUSH = 1 << 2,     /* push and n_push; default: as planned */
    STEPAF_START_PARAM_ANSWERS = 1 << 3,  /* default: as set for the plan */
    STEPAF_START_PARAM_PATIENCE = 1 << 4, /* default: as set for the plan */
    STEPAF_START_PARAM_ALL = (1 << 5) - 1
};

/** Differences of one start from its plan. Only fields named in @a field_mask are read. */
typedef struct stepaf_start_params {
    uint64_t field_mask; /* STEPAF_START_PARAM_*; unknown bits are STEPAF_ERR_INVALID */
    int64_t timeout_us;  /* with STEPAF_START_WAIT; 0 polls once */
    uint32_t flags;      /* STEPAF_START_WAIT, STEPAF_START_SKIP_LOST */
    int n_push;          /* entries of push */
    /** Sources and sizes; NULL: as planned. Without STEPAF_PLAN_SCATTER, one entry for each
     *  planned push tensor. With STEPAF_PLAN_SCATTER, one entry for each peer and push tensor:
     *  entry f * P + i is tensor i for peer f, of P planned tensors. A peer whose entries all have
     *  0 bytes is skipped: it receives no batch, and its pulls complete with 0 bytes. Keys are the
     *  planned ones. data may point to other registered memory. bytes may be smaller than planned,
     *  never larger. */
    const stepaf_tensor_t *push;
    int n_answers;       /* as for stepaf_plan_set_answers; 0: as set for the plan */
    int64_t patience_us; /* as for stepaf_plan_set_answers; 0: none */
} stepaf_start_params_t;

/** Compile a push_pull (attention ranks).
 *
 *  A plan made before a commit can be started after the commit. A plan made after a commit, with
 *  keys and memory of that commit, can be started immediately.
 *  @param push    n_push tensors, 0 .. STEPAF_MAX_TENSORS, with distinct keys. Every FFN rank
 *                 receives the same bytes; with STEPAF_PLAN_SCATTER, data and bytes are defaults
 *                 and upper bounds for the slice of each rank.
 *  @param pull    n_pull destinations, peer by peer: entry f * B + i is written by peer f (in a
 *                 full mesh, FFN rank f), with F peers and B = n_pull / F, 0 .. STEPAF_MAX_TENSORS.
 *                 With a depth of D, slot s of a destination is at data + s * max_bytes of its key.
 *                 Ranges must not overlap.
 *  @param flags   STEPAF_PLAN_SCATTER, STEPAF_PLAN_STREAM, both or 0; with STEPAF_PLAN_STREAM also
 *                 STEPAF_PLAN_KEEP_SOURCES.
 *  @param plan_p  owned by the context until stepaf_plan_destroy or stepaf_finalize. The arrays are
 *                 copied; the memory that they name stays registered.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_INVALID (counts, flags,
 *  nothing to push or pull, overlap, a key twice, wrong direction); STEPAF_ERR_PULLS (n_pull is not
 *  a multiple of the number of peers); STEPAF_ERR_KEY; STEPAF_ERR_SIZE (more than the key's
 *  max_bytes); STEPAF_ERR_UNREGISTERED; STEPAF_ERR_UNSUPPORTED (with STEPAF_PLAN_STREAM, a
 *  destination of another kind of memory than its key's, or host memory that cannot be pinned for
 *  the GPU); STEPAF_ERR_STATE (host memory would have to be pinned while streams wait for peers
 *  through the host); STEPAF_ERR_LIMIT (65,535 plans); STEPAF_ERR_NO_MEMORY.
 *
 *  On failure, nothing changes. Does not block. */
STEPAF_API stepaf_status_t stepaf_plan_create(stepaf_context_h ctx, const stepaf_tensor_t *push,
                                              int n_push, const stepaf_tensor_t *pull, int n_pull,
                                              uint32_t flags, stepaf_plan_h *plan_p);

/** Compile the FFN rank's side of a stream plan: what it receives, and the sources of its answers.
 *  @param keys     n_keys push keys, 0 .. STEPAF_MAX_TENSORS, in the order of the attention ranks'
 *                  plans.
 *  @param answers  n_answers sources, peer by peer: entry a * B + i is answer i to peer a, with A
 *                  peers and B = n_answers / A, 0 .. STEPAF_MAX_TENSORS. With a depth of D, slot s
 *                  of a source is at data + s * max_bytes of its key; bytes is the largest size
 *                  that is sent.
 *  @param flags    STEPAF_PLAN_STREAM, and with it STEPAF_PLAN_ANY and STEPAF_PLAN_KEEP_SOURCES.
 *  @param plan_p   owned by the context until stepaf_plan_destroy or stepaf_finalize.
 *  @return as for stepaf_plan_create; STEPAF_ERR_INVALID also without STEPAF_PLAN_STREAM;
 *  STEPAF_ERR_LIMIT also with STEPAF_PLAN_ANY and more than 64 tensors in each direction over all
 *  peers.
 *
 *  On failure, nothing changes. Does not block. */
STEPAF_API stepaf_status_t stepaf_plan_create_ffn(stepaf_context_h ctx, const uint64_t *keys,
                                                  int n_keys, const stepaf_tensor_t *answers,
                                                  int n_answers, uint32_t flags,
                                                  stepaf_plan_h *plan_p);

/** Destroy a plan.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (an operation is in flight, one of its
 *  batches is not released, another thread waits in a start of the plan, or a stream has not
 *  completed the plan's last operation with peers that are reached through the host).
 *
 *  On failure, nothing changes. Does not block. */
STEPAF_API stepaf_status_t stepaf_plan_destroy(stepaf_plan_h plan);

/** Return the number of slots of @a plan, the smallest depth of its keys; 0 for an invalid handle.
 *  Does not block. */
STEPAF_API unsigned stepaf_plan_depth(stepaf_plan_h plan);

/** Set how many answers complete an operation of @a plan (attention ranks). In force from the next
 *  start; for a stream plan, from the next commit.
 *
 *  stepaf_answers(7) explains what happens to the other answers.
 *  @param n_answers    number of FFN ranks that must have answered, 1 .. number of peers; 0: all.
 *                      Ranks that an operation skips do not count; if fewer than n_answers remain,
 *                      all of them must answer. A rank that is lost, or releases the batch without
 *                      an answer, fails the operation only if too few are left.
 *  @param patience_us  time from the start, in microseconds, to wait for the remaining answers
 *                      after enough have arrived; 0: none. The end of this time takes effect within
 *                      a wait or test. On streams, the time counts from when the stream reaches the
 *                      wait.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_INVALID (@a n_answers,
 *  @a patience_us); STEPAF_ERR_LIMIT (a stream plan that pulls more than 64 tensors over all
 *  peers).
 *
 *  On failure, nothing changes. Does not block. */
STEPAF_API stepaf_status_t stepaf_plan_set_answers(stepaf_plan_h plan, int n_answers,
                                                   int64_t patience_us);

/** Start an operation: push the planned tensors to the FFN ranks, and expect their answers.
 *
 *  A source in GPU memory must be complete: synchronize first with the streams that write it, also
 *  after a cudaMemcpy from pageable host memory, which may return before the GPU has the bytes
 *  (CUDA Runtime API, "API synchronization behavior"). Ranks that the last commit has excluded are
 *  skipped while any other is left.
 *  @param request_p  valid until the plan has been started depth more times. Sources must not
 *                    change until stepaf_request_sent returns STEPAF_OK.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (the plan has keys or memory that need a
 *  commit first, an FFN rank receives one of its keys in GPU memory on streams, or a commit failed
 *  halfway); STEPAF_ERR_WOULD_BLOCK (the slot's last operation is in flight, or an FFN rank has not
 *  released its batch); STEPAF_ERR_PEER_LOST (an FFN rank that this operation needs, or all peers);
 *  STEPAF_ERR_TRANSPORT (a source is in GPU memory, and the GPU failed).
 *
 *  On failure, nothing is sent. Does not block. */
STEPAF_API stepaf_status_t stepaf_start(stepaf_plan_h plan, stepaf_request_h *request_p);

/** Start an operation that differs from its plan in sizes, sources or behavior.
 *  @param params     NULL: as stepaf_start. Not kept.
 *  @param request_p  as for stepaf_start.
 *  @return as for stepaf_start; STEPAF_ERR_INVALID (field_mask, flags, counts, keys);
 *  STEPAF_ERR_SIZE; STEPAF_ERR_UNREGISTERED; STEPAF_ERR_UNSUPPORTED (a source in GPU memory that no
 *  commit has prepared); STEPAF_ERR_TIMEOUT (with STEPAF_START_WAIT: no slot became free).
 *
 *  On failure, nothing is sent. Blocks only with STEPAF_START_WAIT. */
STEPAF_API stepaf_status_t stepaf_start_with(stepaf_plan_h plan,
                                             const stepaf_start_params_t *params,
                                             stepaf_request_h *request_p);

/** Push and pull in one call, without creating a plan (attention ranks).
 *
 *  The context makes a plan for these keys and destinations, keeps it for the next such call, and
 *  starts it with these sources and sizes. Finding a kept plan takes tens of nanoseconds if few
 *  plans are kept or calls repeat in the same order. A kept plan ends when one of its keys is
 *  withdrawn. Once its requests have been waited for, a kept plan also ends when memory that it
 *  names is freed or deregistered, or when 1,024 other plans have been used since.
 *  @param push       as for stepaf_plan_create, with the bytes of this operation.
 *  @param pull       as for stepaf_plan_create.
 *  @param request_p  as for stepaf_start.
 *  @return as for stepaf_plan_create and stepaf_start.
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_push_pull(stepaf_context_h ctx, const stepaf_tensor_t *push,
                                            int n_push, const stepaf_tensor_t *pull, int n_pull,
                                            stepaf_request_h *request_p);

#ifdef __cplusplus
}
#endif
#endif
