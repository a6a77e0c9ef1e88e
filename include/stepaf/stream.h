/* SPDX-License-Identifier: Apache-2.0 */
/* Push and pull on CUDA streams: operations on GPU memory that are enqueued like kernels.
 *
 * An attention rank makes a plan with stepaf_plan_create and STEPAF_PLAN_STREAM, an FFN rank with
 * stepaf_plan_create_ffn. After stepaf_commit, an operation is four calls, which only enqueue:
 *
 *   attention rank                            FFN rank
 *   stepaf_start_on_stream(plan, ...)         stepaf_recv_on_stream(plan, ...)
 *   ... other work ...                        ... the FFN ...
 *   stepaf_wait_on_stream(plan, ...)          stepaf_respond_on_stream(plan, ...)
 *
 * stepaf_stream(7) explains the order of calls that the caller must keep, graphs, peers that are
 * reached through the host, limits, and the state after a failure. */
#ifndef STEPAF_STREAM_H
#define STEPAF_STREAM_H

#include <stepaf/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A cudaStream_t or a CUstream, which are the same. NULL is the legacy default stream, which
 * cannot be captured. */
typedef void *stepaf_stream_t;

/** Enqueue the pushes of an operation on @a stream (attention ranks).
 *  @param params     NULL: as planned. Otherwise its flags, n_answers and patience_us must be 0,
 *                    and push gives sizes, no larger than planned, and sources, where NULL stands
 *                    for the planned one: n_push entries with the planned keys; in a scattered
 *                    plan, that many for each peer. They become part of a captured graph.
 *  @param stream     of this context's GPU.
 *  @param request_p  NULL, or a request for stepaf_wait, stepaf_test and stepaf_wait_any, valid
 *                    until the plan has been started depth more times. A wait for the request first
 *                    enqueues the waits of earlier operations that have none; those that were
 *                    started without a request must precede it on the streams. Must be NULL while
 *                    @a stream is captured.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_STATE (not a stream plan, not
 *  committed since it was made, or a commit is in progress); STEPAF_ERR_WOULD_BLOCK (depth
 *  operations are started that neither stepaf_wait_on_stream nor their requests have waited for);
 *  STEPAF_ERR_INVALID; STEPAF_ERR_SIZE; STEPAF_ERR_UNREGISTERED (a source is neither in registered
 *  GPU memory nor in host memory that a stream plan names); STEPAF_ERR_UNSUPPORTED (a source in
 *  host memory where GPU memory was planned, with a STEPAF_CUDA_ENGINE whose copy engine cannot
 *  read it; a source in GPU memory that no commit has prepared, where an RDMA device must read it;
 *  n_answers or patience_us in @a params: on streams these are set for the plan);
 *  STEPAF_ERR_TRANSPORT (CUDA rejected a launch: if a part of the operation was enqueued, every
 *  further call returns this until the next commit); the plan's failure, see stepaf_plan_status.
 *
 *  On other failures, nothing is enqueued. Blocks while the queue of @a stream is full. */
STEPAF_API stepaf_status_t stepaf_start_on_stream(stepaf_plan_h plan,
                                                  const stepaf_start_params_t *params,
                                                  stepaf_stream_t stream,
                                                  stepaf_request_h *request_p);

/** Make @a stream wait for the oldest operation that was started and not waited for (attention
 *  ranks). Work enqueued later finds all pull tensors in place, or those that stepaf_plan_answers
 *  reports.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_STATE (not a stream plan, or
 *  nothing to wait for); STEPAF_ERR_INVALID (@a stream is captured, and the operation has a
 *  request); STEPAF_ERR_TRANSPORT; the plan's failure.
 *
 *  Blocks while the queue of @a stream is full. */
STEPAF_API stepaf_status_t stepaf_wait_on_stream(stepaf_plan_h plan, stepaf_stream_t stream);

/** Make @a stream wait for the next batch of every attention rank of the mesh (FFN ranks); with
 *  STEPAF_PLAN_ANY, for the next batch of any one of them.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_STATE (not a stream plan, or
 *  not committed); STEPAF_ERR_WOULD_BLOCK (depth batches are received and not answered; with
 *  STEPAF_PLAN_ANY, depth times the number of peers); STEPAF_ERR_TRANSPORT; the plan's failure.
 *
 *  Blocks while the queue of @a stream is full. */
STEPAF_API stepaf_status_t stepaf_recv_on_stream(stepaf_plan_h plan, stepaf_stream_t stream);

/** Enqueue the answers to the oldest batch that was received and not answered, and its release (FFN
 *  ranks). Its receive buffers may be overwritten once @a stream has reached this point.
 *  @param tensors  NULL: as planned. Otherwise as many as the plan has answers, peer by peer:
 *                  sizes, no larger than planned, and sources, where NULL stands for the planned
 *                  one. With STEPAF_PLAN_ANY, as many as one peer has, with sizes no larger than
 *                  planned for any peer; a NULL source is the one planned for the peer and slot of
 *                  the batch.
 *  @param stream   of this context's GPU.
 *  @return as for stepaf_start_on_stream; STEPAF_ERR_STATE also if no batch is left to answer.
 *
 *  Blocks while the queue of @a stream is full. */
STEPAF_API stepaf_status_t stepaf_respond_on_stream(stepaf_plan_h plan,
                                                    const stepaf_tensor_t *tensors,
                                                    stepaf_stream_t stream);

/** Describe a tensor that this rank receives in @a slot of a stream plan: at an attention rank a
 *  pull tensor, at an FFN rank the receive buffer of a push key. Call after the commit.
 *  @param slot    0 .. depth-1
 *  @param peer    index of the peer, see stepaf_peer_rank
 *  @param index   of the tensor among those of the peer
 *  @param info_p  filled; the caller sets its size field. data is where the tensor arrives, bytes
 *                 the planned size.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_STATE; STEPAF_ERR_INVALID.
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_plan_tensor(stepaf_plan_h plan, unsigned slot, int peer,
                                              int index, stepaf_tensor_info_t *info_p);

/** Return the GPU memory that holds the numbers of bytes that have arrived in @a slot; NULL if
 *  @a plan is not a committed stream plan or has no such slot.
 *
 *  The memory has an entry for each tensor of each peer, peer by peer, written before the wait of
 *  the stream ends. Valid until the next commit.
 *
 *  Does not block. */
STEPAF_API const uint32_t *stepaf_plan_bytes(stepaf_plan_h plan, unsigned slot);

/** Peers whose answers are valid, as the GPU reads them: one bit per peer, see stepaf_peer_rank.
 *  The structure never changes. */
typedef struct stepaf_answers {
    uint64_t mask;     /* peers whose tensors are valid; stepaf_plan_bytes has 0 for all others */
    uint64_t given_up; /* peers that are no longer asked, until the next commit */
    uint64_t late;     /* answers that starts of the plan have waited for since the last commit */
} stepaf_answers_t;

/** Return the GPU memory that says which answers to the operation in @a slot are valid (attention
 *  ranks), for a plan that does not wait for all of them; NULL if @a plan is no such plan since the
 *  last commit, or has no such slot.
 *
 *  See stepaf_plan_set_answers. Written before the wait of the stream ends. Valid until the next
 *  commit.
 *
 *  Does not block. */
STEPAF_API const stepaf_answers_t *stepaf_plan_answers(stepaf_plan_h plan, unsigned slot);

/** Origin of a batch, as the GPU reads it. The structure never changes. */
typedef struct stepaf_origin {
    uint32_t peer; /* index, see stepaf_peer_rank and stepaf_plan_tensor */
    uint32_t slot; /* of that peer: 0 .. depth-1 */
} stepaf_origin_t;

/** Return the GPU memory that holds the origin of the batch that was last received on a plan with
 *  STEPAF_PLAN_ANY; NULL if @a plan is no such plan or not committed.
 *
 *  Written before the wait of stepaf_recv_on_stream ends, and again by the next receive: a caller
 *  that receives several batches before it answers copies the origin in between, on the stream.
 *  Valid until the next commit.
 *
 *  Does not block. */
STEPAF_API const stepaf_origin_t *stepaf_plan_origin(stepaf_plan_h plan);

/** Return whether a stream plan has failed. The plan stays failed until the next commit.
 *
 *  Batches that the failed plan does not answer are released to peers that are reached through the
 *  host.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (not a stream plan). With
 *  stepaf_last_error naming the peer, or one of several: STEPAF_ERR_PEER_LOST; STEPAF_ERR_TIMEOUT
 *  (a wait took longer than STEPAF_STREAM_TIMEOUT_US, which applies to each launch);
 *  STEPAF_ERR_CANCELED (an FFN rank that is reached through the host released a batch without an
 *  answer); STEPAF_ERR_PROTOCOL (an attention rank with a plan in host memory skipped this rank, or
 *  has less space for an answer than planned here; or a peer sent other sizes than it announced).
 *  STEPAF_ERR_TRANSPORT (CUDA rejected a part of an operation, and no peer caused it). For peers
 *  that are reached through the host, also the status with which the host could not send a part of
 *  an operation, such as STEPAF_ERR_UNREGISTERED; stepaf_last_error has the reason.
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_plan_status(stepaf_plan_h plan);

#ifdef __cplusplus
}
#endif
#endif
