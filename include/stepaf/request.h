/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: waiting for operations (attention side) and for responses' sources (FFN side). */
#ifndef STEPAF_REQUEST_H
#define STEPAF_REQUEST_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Wait until @a request is complete: for an operation, until every FFN rank has answered (all
 *  pull tensors have landed), or, if it pulls nothing, has released its batch; for a response,
 *  until its source may be reused.
 *
 *  A final result retires the request: a second wait is STEPAF_ERR_STATE.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (already waited for);
 *  STEPAF_ERR_TIMEOUT (still in flight: wait again or cancel; stepaf_last_error names the first
 *  rank that has not answered); STEPAF_ERR_PEER_LOST (final; names the rank; answers of the other
 *  ranks may have landed, see stepaf_request_peer); STEPAF_ERR_CANCELED (final).
 *  Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_wait(stepaf_request_h request, int64_t timeout_us);

/** Look whether @a request is complete; as stepaf_wait, with STEPAF_INPROGRESS for "not yet".
 *  Never blocks. A loop that looks and yields should sleep for an instant now and then: on Linux
 *  6.18, ranks that only yield have kept those of other Unix sessions off all cores for 20 s. */
STEPAF_API stepaf_status_t stepaf_test(stepaf_request_h request);

/** Wait until one of @a n requests of one context is complete. NULL entries and requests that
 *  were waited for already are passed over.
 *  @param index_p  which one; set whenever a request was retired, also by a failure.
 *  @return that request's result, as stepaf_wait; STEPAF_ERR_TIMEOUT (none); STEPAF_ERR_STATE
 *  (nothing left to wait for); STEPAF_ERR_INVALID (n, or requests of several contexts). */
STEPAF_API stepaf_status_t stepaf_wait_any(const stepaf_request_h *requests, int n,
                                           int64_t timeout_us, int *index_p);

/** Give up an operation. It completes with STEPAF_ERR_CANCELED unless it was complete already.
 *  FFN ranks are told; one that has not taken the batch yet never sees it. The slot comes free,
 *  and the destinations are untouched from then on, when every FFN rank has let go of it: until
 *  then a start that needs the slot is STEPAF_ERR_WOULD_BLOCK.
 *  @return STEPAF_OK (wait for it as usual); STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (complete
 *  already, or a response). Never blocks. */
STEPAF_API stepaf_status_t stepaf_cancel(stepaf_request_h request);

/** Look whether the operation's source tensors may be overwritten: the buffer-reuse signal. It
 *  comes before completion, often with the start itself.
 *  @return STEPAF_OK; STEPAF_INPROGRESS; STEPAF_ERR_HANDLE. Valid also after the wait. Never
 *  blocks. */
STEPAF_API stepaf_status_t stepaf_request_sent(stepaf_request_h request);

/** Look at pull tensor @a index (server-major, peer by peer, as planned) alone.
 *  @param info_p  NULL, or filled when the tensor has landed: where, and its actual size.
 *  @return STEPAF_OK (landed); STEPAF_INPROGRESS; STEPAF_ERR_PEER_LOST, STEPAF_ERR_CANCELED (it
 *  will not land); of an operation on streams that has failed, what stepaf_wait says;
 *  STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (index). Valid also after the wait, until the slot is started
 *  again. Never blocks. */
STEPAF_API stepaf_status_t stepaf_request_tensor(stepaf_request_h request, int index,
                                                 stepaf_tensor_info_t *info_p);

/** Look at FFN rank @a ffn_rank's part of the operation alone.
 *  @param ffn_rank  within the FFN group; one of this rank's peers, else STEPAF_ERR_INVALID.
 *  @return STEPAF_OK (answered, or skipped); else as stepaf_request_tensor. Never blocks. */
STEPAF_API stepaf_status_t stepaf_request_peer(stepaf_request_h request, int ffn_rank);

/** Return the slot that the operation uses, 0 .. depth-1; -1 for an invalid handle. */
STEPAF_API int stepaf_request_slot(stepaf_request_h request);

#ifdef __cplusplus
}
#endif
#endif
