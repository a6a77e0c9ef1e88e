/* SPDX-License-Identifier: Apache-2.0 */
/* Push and pull on CUDA streams: tensors in GPU memory, no host in the way, graphs included.
 *
 * Who can be a peer: ranks of the same node with a GPU are reached directly, GPU to GPU. Ranks of
 * other nodes, ranks without a GPU, and all others where STEPAF_CUDA_PROXY=always says so at either
 * rank, are *relayed*: by way of pinned host memory and the ordinary transports. A relayed peer may
 * have a stream plan, or an ordinary one (an FFN rank: receive batches, an attention rank: start and
 * wait) with the same keys and all its tensors in host memory. One plan may have peers of both
 * sorts; nothing else in this file changes. A rank with a stream plan and relayed peers needs the
 * library's thread (STEPAF_PROGRESS=thread), or its commit is STEPAF_ERR_UNSUPPORTED. It costs two
 * copies more at each end and some ten microseconds a round trip, and pinned memory: for each tensor,
 * relayed peer and slot its size, rounded up to 64 bytes, and 128 bytes. Plans that share a push key
 * share its buffers then, as plans in host memory do. Streams that wait for relayed peers wait for this
 * process: a plan may have 128 operations enqueued and not yet come by (captured ones do not count),
 * then STEPAF_ERR_WOULD_BLOCK; and until streams have come by theirs, stepaf_plan_destroy,
 * stepaf_free and stepaf_deregister of memory that the GPU uses, and plans that pin more of it are
 * STEPAF_ERR_STATE, and stepaf_commit waits for them. Such a context cannot also have GPU memory in
 * plans without streams.
 *
 * Sources, and destinations of keys with STEPAF_MEM_HOST, may also be in registered host memory. It
 * is pinned for the GPU by the first plan that names it, or by the commit that receives into it.
 *
 * Both sides make a plan with STEPAF_PLAN_STREAM, and stepaf_commit joins the plans that name the
 * same keys; where a rank has several, in the order in which they were made. From then on an operation is
 * four calls, which only enqueue:
 *
 *   attention rank                            FFN rank
 *   stepaf_start_on_stream(plan, s, ...)      stepaf_recv_on_stream(plan, s)
 *   ... other work ...                        ... the FFN, on s ...
 *   stepaf_wait_on_stream(plan, s)            stepaf_respond_on_stream(plan, s)
 *
 * Each waits for, or is waited for by, all peers of the rank at once, however many: one launch does for
 * 64 tensors, and more of them take further launches. An FFN rank's batch n of a plan is batch n of
 * every attention rank. Slots are used in turn: operation n (from 0) is in slot n mod depth, on both
 * sides.
 *
 * An FFN rank's plan with STEPAF_PLAN_ANY takes the batches one by one instead, of whichever attention
 * rank has sent one; theirs are ordinary stream plans. Which it was is known on the GPU only, where
 * the user's kernels find it:
 *
 *   const stepaf_origin_t *origin = stepaf_plan_origin(plan);     once
 *   stepaf_recv_on_stream(plan, s);                               waits for any
 *   ffn<<<..., s>>>(origin, ...);                                 reads origin->peer, origin->slot
 *   stepaf_respond_on_stream(plan, NULL, s);                      to that one
 *
 * The batches of one attention rank are taken in their order, and no rank is passed over twice while
 * its batch is there: the search begins behind the rank that was taken last. Up to depth batches of
 * each rank can be received and not answered; answers go out in the order of receiving. Receives of
 * such a plan must follow one another, in one stream or by events between two; so must answers, and
 * each must follow its receive, or it is not sent.
 * Their workers must be reached directly: the commit refuses one that is relayed.
 * Multiprocessors do all that such a plan sends, whatever STEPAF_CUDA_ENGINE says, since a copy engine
 * has to be told the place by the host.
 *
 * None of the four waits for a peer. As any launch of a kernel, each waits while its stream is full of
 * what was enqueued before. Where peers are relayed, only the plan's others of the four wait for it then,
 * stepaf_wait of a request that nothing waits for yet, and stepaf_commit; stepaf_plan_destroy is
 * STEPAF_ERR_STATE. A batch handler, which runs in the library's thread, must not call them there.
 *
 * The order of the user's work is the streams' order, and the user's to keep, in one stream or by
 * events between two: a wait, and what reads the answer, comes before the start that uses its slot
 * again; a receive before its answer; and a receive after the answer to what its slot held. The
 * library relies on it, whether anybody reads the bytes or not.
 * Receiving ends with the batch's release, which goes with the answer. Plans that share a push key share
 * its receive buffers: a receive of one comes after the answer to what another has in the same slot.
 *
 * A kernel of the user's that is launched as a programmatic dependent of the library's may begin before
 * anything has come (CUDA Programming Guide, "Programmatic Dependent Launch"): it has to call
 * cudaGridDependencySynchronize before it reads, and in any case before it ends, since what is enqueued
 * behind it waits for it alone.
 *
 * All four may be captured into a CUDA graph, and a graph may be replayed any number of times. It
 * has to hold whole operations, and a multiple of the plan's depth of them, so that each replay
 * begins with the slot that it was captured with. With STEPAF_PLAN_ANY the slot is not part of it: as
 * many receives as answers will do.
 *
 * stepaf_commit ends what streams have not come by: of operations with peers that are reached directly
 * the rest does nothing, and nobody is told. So the streams are to be synchronized with before.
 *
 * A graph belongs to the commit that it was captured after: replayed after a later one it does
 * nothing, as long as the memory that it sends from is still there. If a receive of more than about
 * 16 KB was captured, the library therefore keeps the inlets of that commit, the GPU memory that peers
 * write to, of all slots of all stream plans, until stepaf_finalize. Where copy engines are at work
 * (STEPAF_CUDA_ENGINE=ce, or tensors of 32 MiB and more) such a graph must not be replayed: its
 * copies go where nothing is any more.
 *
 * A failure on the way, a lost peer or a deadline, releases the stream; what it does next reads old
 * bytes, or those of some peers are new. stepaf_plan_status tells. Such a plan is over until the next
 * commit, which begins anew.
 *
 * The GPU is the one that is current to the thread whose call is the first to need one (stepaf_alloc,
 * stepaf_register, stepaf_plan_create), or GPU 0. Streams belong to it. */
#ifndef STEPAF_STREAM_H
#define STEPAF_STREAM_H

#include <stepaf/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A cudaStream_t, or CUstream: the same thing. NULL is the legacy default stream, which cannot be
 * captured. */
typedef void *stepaf_stream_t;

/** Attention ranks: enqueue an operation's pushes on @a stream: after what it holds already.
 *
 *  @param params     NULL: as planned. Else flags must be 0, and push gives sizes, no larger than
 *                    planned, and sources, NULL as planned: n_push entries with the planned keys, in
 *                    a scattered plan so many for each peer. They become part of a captured graph.
 *  @param stream     of this rank's GPU.
 *  @param request_p  NULL, or a request for stepaf_wait, stepaf_test and stepaf_wait_any, valid until the
 *                    plan has been started depth more times. Waiting for it begins with the
 *                    operations before it that nothing waits for yet: those that were started
 *                    without a request precede it on the streams, by one stream or by events. Must
 *                    be NULL while @a stream is captured: replays have no requests.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_STATE (no stream plan, not
 *  committed since it was made, or a commit is under way); STEPAF_ERR_WOULD_BLOCK (depth operations are
 *  started and not waited for by stepaf_wait_on_stream, nor complete by their requests);
 *  STEPAF_ERR_INVALID; STEPAF_ERR_SIZE; STEPAF_ERR_UNREGISTERED (a source is neither in registered GPU memory nor in host
 *  memory that a stream plan names); STEPAF_ERR_UNSUPPORTED (a source in host memory where GPU memory
 *  was planned, and STEPAF_CUDA_ENGINE leaves it to a copy engine that cannot); STEPAF_ERR_TRANSPORT
 *  (CUDA refuses a launch: if a part was enqueued, the plan is over before the next commit, and every
 *  call says so); the plan's failure, see stepaf_plan_status. Nothing was enqueued on other failures.
 *  Blocks while @a stream is full. */
STEPAF_API stepaf_status_t stepaf_start_on_stream(stepaf_plan_h plan,
                                                  const stepaf_start_params_t *params,
                                                  stepaf_stream_t stream,
                                                  stepaf_request_h *request_p);

/** Attention ranks: make @a stream wait for the oldest operation that was started and not waited
 *  for: what is enqueued after it finds all pull tensors in place.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_STATE (no stream plan, or
 *  nothing to wait for); STEPAF_ERR_INVALID (@a stream is captured, and the operation has a request);
 *  STEPAF_ERR_TRANSPORT; the plan's failure. Blocks while @a stream is full. */
STEPAF_API stepaf_status_t stepaf_wait_on_stream(stepaf_plan_h plan, stepaf_stream_t stream);

/** FFN ranks: make @a stream wait for the next batch of every attention rank of the mesh; with
 *  STEPAF_PLAN_ANY, for the next of any one of them.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_STATE (no stream plan, or not
 *  committed); STEPAF_ERR_WOULD_BLOCK (depth batches are received and not answered; with
 *  STEPAF_PLAN_ANY, depth times the number of peers); STEPAF_ERR_TRANSPORT; the plan's failure.
 *  Blocks while @a stream is full. */
STEPAF_API stepaf_status_t stepaf_recv_on_stream(stepaf_plan_h plan, stepaf_stream_t stream);

/** FFN ranks: enqueue the answers to the oldest batch that was received and not answered, and its
 *  release: its receive buffers may be overwritten once @a stream has come here.
 *
 *  @param tensors  NULL: as planned. Else as many as the plan has pulls, peer by peer: sizes, no larger
 *                  than planned, and sources, NULL as planned. With STEPAF_PLAN_ANY only as many as
 *                  one peer has: they are for whichever it is, with sizes no larger than planned for
 *                  any of them; a source of NULL is the one planned for that peer and slot.
 *  @return as stepaf_start_on_stream; STEPAF_ERR_STATE (no batch to answer). Blocks while @a stream
 *  is full. */
STEPAF_API stepaf_status_t stepaf_respond_on_stream(stepaf_plan_h plan,
                                                    const stepaf_tensor_t *tensors,
                                                    stepaf_stream_t stream);

/** Describe what arrives at this rank in @a slot of a stream plan: at an attention rank its pull
 *  tensors, at an FFN rank the receive buffers of its push keys. Valid after the commit.
 *
 *  @param slot    0 .. depth-1
 *  @param peer    index of the peer, see stepaf_peer_rank
 *  @param index   of the tensor within the peer's
 *  @param info_p  data is where it lands; bytes what was planned at most.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_STATE; STEPAF_ERR_INVALID. Never blocks. */
STEPAF_API stepaf_status_t stepaf_plan_tensor(stepaf_plan_h plan, unsigned slot, int peer,
                                              int index, stepaf_tensor_info_t *info_p);

/** Return where the GPU finds how many bytes have really landed in @a slot: in GPU memory, an entry
 *  for each tensor of each peer, peer by peer. Written before the wait ends. NULL if @a plan is no
 *  committed stream plan, or @a slot none of its. Never blocks. */
STEPAF_API const uint32_t *stepaf_plan_bytes(stepaf_plan_h plan, unsigned slot);

/** Where a batch is from. */
typedef struct stepaf_origin {
    uint32_t peer; /* its index, see stepaf_peer_rank and stepaf_plan_tensor */
    uint32_t slot; /* of that peer's: 0 .. depth-1 */
} stepaf_origin_t;

/** Return where the GPU finds whose batch was received last on a plan with STEPAF_PLAN_ANY: in GPU
 *  memory, written before the wait of stepaf_recv_on_stream ends, and again by the next. So it is read
 *  behind a receive and before the next one: who receives several batches before answering copies it
 *  in between, by the stream. NULL if @a plan is no such plan, or not committed. Valid until the next
 *  commit. Never blocks. */
STEPAF_API const stepaf_origin_t *stepaf_plan_origin(stepaf_plan_h plan);

/** Look whether a stream plan has failed.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (no stream plan); STEPAF_ERR_PEER_LOST,
 *  STEPAF_ERR_TIMEOUT (a wait was longer than STEPAF_STREAM_TIMEOUT_US, which each launch has),
 *  STEPAF_ERR_CANCELED (a relayed FFN rank has released a batch without an answer: one in host memory,
 *  or whose stream plan has failed), STEPAF_ERR_PROTOCOL (a relayed attention rank in host memory has
 *  skipped this rank, or has less room for an answer): with stepaf_last_error naming the peer; where
 *  any would have done, the one whose turn it was; STEPAF_ERR_TRANSPORT (CUDA has refused a part of an
 *  operation, and nobody else is to blame). What a stream plan that has failed does not answer is given
 *  back to relayed peers. Never blocks. */
STEPAF_API stepaf_status_t stepaf_plan_status(stepaf_plan_h plan);

#ifdef __cplusplus
}
#endif
#endif
