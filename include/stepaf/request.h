/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: wait for operations (attention ranks), and for the sources of answers (FFN ranks). */
#ifndef STEPAF_REQUEST_H
#define STEPAF_REQUEST_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Wait until @a request is complete.
 *
 *  An operation is complete when every FFN rank has answered and all pull tensors have arrived or,
 *  if it pulls nothing, when every FFN rank has released its batch. With stepaf_plan_set_answers,
 *  an operation may complete earlier. An answer's request is complete when its sources may be
 *  overwritten. A final result ends the request: a second wait returns STEPAF_ERR_STATE.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (already waited for); STEPAF_ERR_TIMEOUT
 *  (still in flight: wait again, or cancel; stepaf_last_error names the first rank that has not
 *  answered); STEPAF_ERR_PEER_LOST (final; names the rank; answers of other ranks may have arrived,
 *  see stepaf_request_peer); STEPAF_ERR_CANCELED (final); STEPAF_ERR_UNREGISTERED (final; a source
 *  cannot be read because its registered memory was unmapped: the operation, or the answer, was not
 *  sent; no peer is lost).
 *
 *  An operation on a stream may also end by STEPAF_ERR_TIMEOUT, after STEPAF_STREAM_TIMEOUT_US.
 *  Further waits, and stepaf_test, then return it again; while the operation is still in flight,
 *  stepaf_test returns STEPAF_INPROGRESS.
 *
 *  Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_wait(stepaf_request_h request, int64_t timeout_us);

/** Wait until FFN rank @a ffn_rank has answered. This does not end the request; stepaf_wait does.
 *  May also be called after the wait.
 *  @param ffn_rank  within the FFN group; one of this rank's peers, otherwise STEPAF_ERR_INVALID.
 *  @return as for stepaf_request_peer, with STEPAF_ERR_TIMEOUT instead of STEPAF_INPROGRESS;
 *  STEPAF_ERR_UNSUPPORTED (on streams).
 *
 *  Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_wait_peer(stepaf_request_h request, int ffn_rank,
                                            int64_t timeout_us);

/** Wait until pull tensor @a index (peer by peer, as planned) has arrived; stepaf_request_tensor
 *  then describes it.
 *
 *  All tensors of a peer arrive together, except those that the FFN rank has sent with
 *  stepaf_respond_tensor. These tensors stay valid, although the peer may still fail to answer.
 *  @return as for stepaf_wait_peer; STEPAF_ERR_INVALID (@a index).
 *
 *  Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_wait_tensor(stepaf_request_h request, int index,
                                              int64_t timeout_us);

/** Wait until FFN rank @a ffn_rank has confirmed, with stepaf_confirm, that the push has arrived. A
 *  tensor of its answer also confirms the push.
 *  @param ffn_rank  as for stepaf_wait_peer.
 *  @return as for stepaf_wait_peer.
 *
 *  Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_wait_push(stepaf_request_h request, int ffn_rank,
                                            int64_t timeout_us);

/** Wait until every FFN rank has released the slot of @a request or is lost. No further writes to
 *  the destinations can follow, from this or an earlier operation in the slot.
 *
 *  For operations that complete before all ranks have answered, see stepaf_plan_set_answers. May
 *  also be called after the wait.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_TIMEOUT (stepaf_last_error names the first rank
 *  that has not released the slot); STEPAF_ERR_UNSUPPORTED (on streams).
 *
 *  Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_wait_rest(stepaf_request_h request, int64_t timeout_us);

/** Test whether @a request is complete.
 *
 *  A loop that tests and yields should also sleep briefly now and then: on Linux 6.18, ranks that
 *  only yield have kept ranks of other Unix sessions off all cores for 20 s.
 *  @return as for stepaf_wait, with STEPAF_INPROGRESS if the request is not complete.
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_test(stepaf_request_h request);

/** Wait until one of @a n requests of one context is complete. NULL entries and requests that have
 *  been waited for are ignored.
 *  @param index_p  index of the request that ended, also if it failed.
 *  @return that request's result, as for stepaf_wait, which may be STEPAF_ERR_TIMEOUT for an
 *  operation on a stream; STEPAF_ERR_TIMEOUT without an index (none is complete);
 *  STEPAF_ERR_STATE (nothing to wait for); STEPAF_ERR_INVALID (@a n, or requests of several
 *  contexts).
 *
 *  Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_wait_any(const stepaf_request_h *requests, int n,
                                           int64_t timeout_us, int *index_p);

/** Cancel an operation: it completes with STEPAF_ERR_CANCELED unless it is already complete.
 *
 *  FFN ranks are notified; a rank that has not yet received the batch never sees it. Once every FFN
 *  rank has released its batch, the slot is free and its destinations are no longer written. Until
 *  then, a start that needs the slot returns STEPAF_ERR_WOULD_BLOCK.
 *  @return STEPAF_OK (wait for the request as usual); STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (already
 *  complete, on streams, or an answer's request).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_cancel(stepaf_request_h request);

/** Return whether the sources of @a request may be overwritten. This is the case before completion,
 *  often as soon as the start returns. May also be called after the wait.
 *  @return STEPAF_OK; STEPAF_INPROGRESS; STEPAF_ERR_HANDLE.
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_request_sent(stepaf_request_h request);

/** Return whether pull tensor @a index (peer by peer, as planned) has arrived. May also be called
 *  after the wait, until the slot is started again.
 *  @param info_p  NULL, or filled when the tensor has arrived, with its address and actual size;
 *                 for an operation on streams, with the planned size, see stepaf_plan_bytes. The
 *                 caller sets its size field.
 *  @return STEPAF_OK (arrived); STEPAF_INPROGRESS; STEPAF_ERR_PEER_LOST, STEPAF_ERR_CANCELED or
 *  STEPAF_ERR_UNREGISTERED (the tensor will not arrive); STEPAF_ERR_WOULD_BLOCK (the tensor will
 *  not arrive: the operation left the rank out, because the rank had not released an earlier one);
 *  for a failed operation on streams, the result of stepaf_wait; STEPAF_ERR_HANDLE;
 *  STEPAF_ERR_INVALID (@a index, or the size of @a info_p).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_request_tensor(stepaf_request_h request, int index,
                                                 stepaf_tensor_info_t *info_p);

/** Return whether FFN rank @a ffn_rank has answered.
 *  @param ffn_rank  within the FFN group; one of this rank's peers, otherwise STEPAF_ERR_INVALID.
 *  @return STEPAF_OK (answered, or skipped); otherwise as for stepaf_request_tensor.
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_request_peer(stepaf_request_h request, int ffn_rank);

/** Report which peers have answered, as a mask with one bit per peer. May also be called after
 *  the wait, until the slot is started again.
 *  @param mask_p   filled: bit p % 64 of word p / 64 is set if the pull tensors of peer p, in the
 *                  order of the plan's destinations, are complete: the peer has answered, or was
 *                  skipped. Bits are only ever added. Tensors of a peer without a bit may be
 *                  written at any time, see stepaf_wait_rest.
 *  @param n_words  of @a mask_p; at least one for every 64 peers.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (@a mask_p, @a n_words).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_request_answers(stepaf_request_h request, uint64_t *mask_p,
                                                  int n_words);

/** Return the slot that the operation uses, 0 .. depth-1; -1 for an invalid handle. Never
 *  blocks. */
STEPAF_API int stepaf_request_slot(stepaf_request_h request);

#ifdef __cplusplus
}
#endif
#endif
