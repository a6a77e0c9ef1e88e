/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: receive, respond, release, on FFN ranks. */
#ifndef STEPAF_BATCH_H
#define STEPAF_BATCH_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which batches stepaf_recv returns. */
typedef enum stepaf_from {
    STEPAF_FROM_ANY = 0, /* batches of any attention rank, in order of arrival */
    STEPAF_FROM_EACH = 1 /* the next batch of each attention rank of the mesh, in rank order */
} stepaf_from_t;

enum {
    STEPAF_RECV_SKIP_LOST = 1 << 0 /* with STEPAF_FROM_EACH: NULL for the batch of a lost rank */
};

enum {
    STEPAF_RESPOND_RELEASE = 1 << 0 /* release the batch with the same message */
};

/** One operation of one attention rank, as it arrived. */
typedef struct stepaf_batch_info {
    size_t size;        /* in: sizeof(stepaf_batch_info_t) */
    int attention_rank; /* within the attention group */
    uint32_t plan;      /* number of the plan at that rank */
    uint32_t sequence;  /* of the operation within its plan, from 0, wraps */
    int n_tensors;      /* pushed; described by stepaf_batch_tensor */
    int n_answers;      /* expected; described by stepaf_batch_answer */
} stepaf_batch_info_t;

/** Callback for each batch that arrives, instead of stepaf_recv. It may call any function that FFN
 *  ranks may call, except the collective ones and stepaf_finalize. A batch that it does not release
 *  stays valid. */
typedef void (*stepaf_batch_cb_t)(stepaf_batch_h batch, void *arg);

/** Receive batches of any attention rank, or one batch of each.
 *  @param flags      STEPAF_RECV_*, or 0.
 *  @param batches_p  STEPAF_FROM_ANY: the batches that have arrived, at least one and at most @a
 *                    capacity. STEPAF_FROM_EACH: one for each peer, in the order of
 *                    stepaf_peer_rank.
 *  @param capacity   of @a batches_p: 1, or with STEPAF_FROM_EACH stepaf_n_peers, or more.
 *  @param n_p        number of batches.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_INVALID; STEPAF_ERR_STATE
 *  (not committed, or a batch callback is set); STEPAF_ERR_TIMEOUT; STEPAF_ERR_PEER_LOST
 *  (STEPAF_FROM_ANY: all attention ranks are lost, and none has a batch left; STEPAF_FROM_EACH:
 *  one that has no batch left is lost). No batch is received on failure. Blocks for at most @a
 *  timeout_us. */
STEPAF_API stepaf_status_t stepaf_recv(stepaf_context_h ctx, stepaf_from_t from, uint32_t flags,
                                       int64_t timeout_us, stepaf_batch_h *batches_p, int capacity,
                                       int *n_p);

/** Set the batch callback: @a handler is called for every batch from now on; NULL returns to
 *  stepaf_recv.
 *
 *  In inline mode the callback runs within stepaf_progress and the calls that wait, otherwise in
 *  the progress thread; never twice at a time. After STEPAF_OK no call of the previous callback is
 *  in progress, except the caller's own if the callback itself calls this, and what its @a arg
 *  pointed to may be freed.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_TIMEOUT (@a handler is set,
 *  but a call of the previous callback is still in progress). Blocks for at most
 *  STEPAF_TIMEOUT_US. */
STEPAF_API stepaf_status_t stepaf_batch_set_handler(stepaf_context_h ctx, stepaf_batch_cb_t handler,
                                                    void *arg);

/** Describe @a batch.
 *  @param info_p  filled; its size is set by the caller.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (also if the batch is released); STEPAF_ERR_INVALID (@a
 *  info_p is NULL, or its size too small). Never blocks. */
STEPAF_API stepaf_status_t stepaf_batch_query(stepaf_batch_h batch, stepaf_batch_info_t *info_p);

/** Describe pushed tensor @a index of @a batch, in plan order.
 *  @param info_p  filled; its size is set by the caller. data points to the receive buffer, until
 *                 the batch is released.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (@a index, or @a info_p is NULL or
 *  its size too small). Never blocks. */
STEPAF_API stepaf_status_t stepaf_batch_tensor(stepaf_batch_h batch, int index,
                                               stepaf_tensor_info_t *info_p);

/** Describe expected answer @a index of @a batch: its key, shape and largest bytes; data is NULL.
 *  @param info_p  filled; its size is set by the caller.
 *  @return as stepaf_batch_tensor. Never blocks. */
STEPAF_API stepaf_status_t stepaf_batch_answer(stepaf_batch_h batch, int index,
                                               stepaf_tensor_info_t *info_p);

/** Answer @a batch: write @a tensors to the pull destinations of the attention rank and notify it.
 *
 *  @param tensors    as many as the batch expects, in its order, with its keys; each at most the
 *                    expected bytes, 0 included. Sources stay the caller's and must not change
 *                    while they are sent. In GPU memory they must be complete, as for
 *                    stepaf_start.
 *  @param flags      STEPAF_RESPOND_RELEASE or 0.
 *  @param request_p  NULL, or a request to wait for before the sources are overwritten. Without it
 *                    they may be overwritten once the next batch of the same plan and slot has
 *                    arrived. The request is valid until the next answer in that slot, also after
 *                    the release. When the attention rank destroys the plan, or a commit ends it,
 *                    the answer has arrived: from then on stepaf_wait, stepaf_test and
 *                    stepaf_request_sent return STEPAF_OK, and stepaf_wait_any ignores the request.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (also if the batch is released); STEPAF_ERR_INVALID (count,
 *  flags, key, or other bytes than sent ahead); STEPAF_ERR_SIZE; STEPAF_ERR_UNREGISTERED (or no
 *  longer mapped); STEPAF_ERR_STATE (already answered); STEPAF_ERR_CANCELED, STEPAF_ERR_PEER_LOST
 *  (the operation has ended: only release the batch). Nothing was sent on failure. Never blocks. */
STEPAF_API stepaf_status_t stepaf_respond(stepaf_batch_h batch, const stepaf_tensor_t *tensors,
                                          int n_tensors, uint32_t flags,
                                          stepaf_request_h *request_p);

/** Send tensor @a index of the answer to @a batch before the others. stepaf_wait_tensor at the
 *  attention rank returns when it has arrived; the operation is complete when stepaf_respond has
 *  answered the batch.
 *
 *  stepaf_respond still takes all tensors, this one with the same bytes and data, and sends only
 *  those that have not been sent. The source must not change until the request of that answer is
 *  complete, or, without an answer, until the next batch of the same plan and slot has arrived. If
 *  the attention rank's plan is on streams, or has tensors in GPU memory, the tensor is reported
 *  with the answer. Allocates memory at the first use of a tensor in a slot.
 *  @param tensor  with the key that the batch expects at @a index, and at most the expected bytes;
 *                 in host memory.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (also if the batch is released); STEPAF_ERR_INVALID
 *  (@a index, key, or @a tensor is NULL); STEPAF_ERR_SIZE; STEPAF_ERR_UNREGISTERED (or no longer
 *  mapped); STEPAF_ERR_UNSUPPORTED (GPU memory); STEPAF_ERR_STATE (this tensor is already sent, or
 *  the batch answered); STEPAF_ERR_NO_MEMORY; STEPAF_ERR_CANCELED, STEPAF_ERR_PEER_LOST (the
 *  operation has ended: only release the batch). Nothing was sent on failure. Never blocks. */
STEPAF_API stepaf_status_t stepaf_respond_tensor(stepaf_batch_h batch, int index,
                                                 const stepaf_tensor_t *tensor);

/** Confirm to the attention rank that the push of @a batch has arrived, for stepaf_wait_push.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (also if the batch is released); STEPAF_ERR_STATE (the
 *  batch is answered, which confirms the push as well); STEPAF_ERR_NO_MEMORY; STEPAF_ERR_CANCELED,
 *  STEPAF_ERR_PEER_LOST (the operation has ended: only release the batch). Never blocks. */
STEPAF_API stepaf_status_t stepaf_confirm(stepaf_batch_h batch);

/** Answer @a n_batches batches with consecutive row slices of the same tensors: the first batch
 *  gets the first rows, and so on. An error in one batch does not shift the rows of the others.
 *  @param batches    of one context, all answered from these tensors. A NULL entry, as from
 *                    STEPAF_RECV_SKIP_LOST, is no batch: its rows are skipped.
 *  @param tensors    n_tensors; a row has the bytes of the declared shape without its first
 *                    dimension.
 *  @param rows       number of rows for each batch, also for those that cannot be answered; NULL:
 *                    as many as its first pushed tensor has, none for a NULL entry.
 *  @param flags      as for stepaf_respond.
 *  @param results_p  NULL, or a result for each batch, as of stepaf_respond: STEPAF_ERR_HANDLE for
 *                    a NULL entry, STEPAF_ERR_KEY if a tensor's key is not declared here.
 *  @return STEPAF_OK if all answers were sent, otherwise the first failure, which does not stop
 *  the others. With nothing sent: STEPAF_ERR_INVALID (no batches, no tensors, or too many);
 *  STEPAF_ERR_SIZE (a tensor has fewer rows than the batches together); STEPAF_ERR_HANDLE (without
 *  @a rows, one of the batches is released, so that the rows of the following ones are not known).
 *  Never blocks. */
STEPAF_API stepaf_status_t stepaf_respond_many(const stepaf_batch_h *batches, int n_batches,
                                               const stepaf_tensor_t *tensors, int n_tensors,
                                               const uint32_t *rows, uint32_t flags,
                                               stepaf_status_t *results_p);

/** Release @a batch: the next operation may overwrite its receive buffers. If the batch expects no
 *  answers, this completes its operation. If it expects answers and has none, the operation
 *  completes at the attention rank with STEPAF_ERR_CANCELED for this rank.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (also if the batch is already released). Never blocks. */
STEPAF_API stepaf_status_t stepaf_release(stepaf_batch_h batch);

#ifdef __cplusplus
}
#endif
#endif
