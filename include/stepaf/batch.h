/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: receive, respond and release, on FFN ranks. */
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

/** Callback for each batch that arrives, instead of stepaf_recv. The callback may call any function
 *  that FFN ranks may call, except collective functions and stepaf_finalize. A batch that the
 *  callback does not release stays valid. */
typedef void (*stepaf_batch_cb_t)(stepaf_batch_h batch, void *arg);

/** Receive batches of any attention rank, or one batch of each.
 *  @param flags      STEPAF_RECV_*, or 0.
 *  @param batches_p  STEPAF_FROM_ANY: the batches that have arrived, at least one and at most
 *  @a capacity. STEPAF_FROM_EACH: one batch for each peer, in the order of stepaf_peer_rank; NULL
 *  for a peer that the epoch is without (stepaf_commit_with, STEPAF_ROOM_ATTENTION), whatever the
 *  flags.
 *  @param capacity   entries of @a batches_p: 1 or more; with STEPAF_FROM_EACH, stepaf_n_peers or
 *                    more.
 *  @param n_p        number of batches.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_INVALID; STEPAF_ERR_STATE (not
 *  committed, or a batch callback is set); STEPAF_ERR_TIMEOUT; STEPAF_ERR_PEER_LOST
 *  (STEPAF_FROM_ANY: all attention ranks are lost, and none has a batch left; STEPAF_FROM_EACH: a
 *  rank that has no batch left is lost).
 *
 *  On failure, no batch is received. Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_recv(stepaf_context_h ctx, stepaf_from_t from, uint32_t flags,
                                       int64_t timeout_us, stepaf_batch_h *batches_p, int capacity,
                                       int *n_p);

/** Set the batch callback. From now on, the library calls @a handler for every batch; NULL returns
 *  to stepaf_recv.
 *
 *  In inline mode, the callback runs within stepaf_progress and the calls that wait; otherwise, in
 *  the progress thread. It never runs twice at a time. After STEPAF_OK, no call of the previous
 *  callback is in progress, except the caller's own if the callback itself calls this function.
 *  What the previous
 *  @a arg pointed to may then be freed.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_TIMEOUT (@a handler is set,
 *  but a call of the previous callback is still in progress).
 *
 *  Blocks for at most STEPAF_TIMEOUT_US. */
STEPAF_API stepaf_status_t stepaf_batch_set_handler(stepaf_context_h ctx, stepaf_batch_cb_t handler,
                                                    void *arg);

/** Describe @a batch.
 *  @param info_p  filled; the caller sets its size field.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (also if the batch is released); STEPAF_ERR_INVALID
 *  (@a info_p is NULL, or its size is too small).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_batch_query(stepaf_batch_h batch, stepaf_batch_info_t *info_p);

/** Describe pushed tensor @a index of @a batch, in plan order.
 *  @param info_p  filled; the caller sets its size field. data points to the receive buffer, until
 *                 the batch is released.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (@a index, or @a info_p is NULL, or its
 *  size is too small).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_batch_tensor(stepaf_batch_h batch, int index,
                                               stepaf_tensor_info_t *info_p);

/** Describe expected answer @a index of @a batch: its key, shape and maximum bytes; data is NULL.
 *  @param info_p  filled; the caller sets its size field.
 *  @return as for stepaf_batch_tensor.
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_batch_answer(stepaf_batch_h batch, int index,
                                               stepaf_tensor_info_t *info_p);

/** Answer @a batch: write @a tensors to the pull destinations of the attention rank, and notify it.
 *  @param tensors    as many as the batch expects, in the same order and with the same keys; each
 *                    at most the expected bytes, 0 included. Sources remain the caller's and must
 *                    not change while they are sent. The receive buffers of @a batch are valid
 *                    sources, also with STEPAF_RESPOND_RELEASE: the attention rank overwrites them
 *                    only after the answer has arrived. Sources in GPU memory must be complete, as
 *                    for stepaf_start.
 *  @param flags      STEPAF_RESPOND_RELEASE, or 0.
 *  @param request_p  NULL, or a request to wait for before the sources are overwritten. With NULL,
 *                    the sources may be overwritten once the next batch of the same plan and slot
 *                    has arrived. The request is valid until the next answer in that slot, also
 *                    after the release. If the attention rank destroys the plan, or a commit ends
 *                    the plan, the answer has arrived: from then on stepaf_wait, stepaf_test and
 *                    stepaf_request_sent return STEPAF_OK, and stepaf_wait_any ignores the request.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (also if the batch is released); STEPAF_ERR_INVALID (count,
 *  flags, key, or bytes that differ from those sent ahead); STEPAF_ERR_SIZE;
 *  STEPAF_ERR_UNREGISTERED (or no longer mapped); STEPAF_ERR_STATE (already answered);
 *  STEPAF_ERR_CANCELED, STEPAF_ERR_PEER_LOST (the operation has ended: only release the batch).
 *
 *  On failure, nothing is sent. Does not block. */
STEPAF_API stepaf_status_t stepaf_respond(stepaf_batch_h batch, const stepaf_tensor_t *tensors,
                                          int n_tensors, uint32_t flags,
                                          stepaf_request_h *request_p);

/** Send tensor @a index of the answer to @a batch before the others.
 *
 *  At the attention rank, stepaf_wait_tensor returns when the tensor has arrived. The operation is
 *  complete when stepaf_respond has answered the batch. stepaf_respond still takes all tensors,
 *  this one with the same bytes and data, and sends only those that have not been sent.
 *
 *  The source must not change until the request of that answer is complete or, without an answer,
 *  until the next batch of the same plan and slot has arrived. If the attention rank's plan is on
 *  streams, or has tensors in GPU memory, the tensor is reported with the answer. The first use of
 *  a tensor in a slot allocates memory.
 *  @param tensor  with the key that the batch expects at @a index, and at most the expected bytes;
 *                 in host memory.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (also if the batch is released); STEPAF_ERR_INVALID
 *  (@a index, key, or @a tensor is NULL); STEPAF_ERR_SIZE; STEPAF_ERR_UNREGISTERED (or no longer
 *  mapped); STEPAF_ERR_UNSUPPORTED (GPU memory); STEPAF_ERR_STATE (this tensor is already sent, or
 *  the batch is answered); STEPAF_ERR_NO_MEMORY; STEPAF_ERR_CANCELED, STEPAF_ERR_PEER_LOST (the
 *  operation has ended: only release the batch).
 *
 *  On failure, nothing is sent. Does not block. */
STEPAF_API stepaf_status_t stepaf_respond_tensor(stepaf_batch_h batch, int index,
                                                 const stepaf_tensor_t *tensor);

/** Confirm to the attention rank that the push of @a batch has arrived; see stepaf_wait_push.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (also if the batch is released); STEPAF_ERR_STATE (the
 *  batch is answered, which also confirms the push); STEPAF_ERR_NO_MEMORY; STEPAF_ERR_CANCELED,
 *  STEPAF_ERR_PEER_LOST (the operation has ended: only release the batch).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_confirm(stepaf_batch_h batch);

/** Answer @a n_batches batches with consecutive row slices of the same tensors: the first batch
 *  gets the first rows, and so on. An error in one batch does not shift the rows of the others.
 *  @param batches    of one context, all answered from these tensors. A NULL entry, as from
 *                    STEPAF_RECV_SKIP_LOST, is no batch: its rows are skipped.
 *  @param tensors    n_tensors; a row has the bytes of the declared shape without its first
 *                    dimension.
 *  @param rows       number of rows for each batch, also for batches that cannot be answered. NULL:
 *                    as many as the batch's first pushed tensor has, none for a NULL entry.
 *  @param flags      as for stepaf_respond.
 *  @param results_p  NULL, or a result for each batch, as for stepaf_respond; STEPAF_ERR_HANDLE for
 *                    a NULL entry, STEPAF_ERR_KEY if a tensor's key is not declared here.
 *  @return STEPAF_OK if all answers were sent, where NULL entries do not count; otherwise the first
 *  failure, which does not stop the others. With nothing sent: STEPAF_ERR_INVALID (no batches, no
 *  tensors, or too many); STEPAF_ERR_SIZE (a tensor has fewer rows than the batches together);
 *  STEPAF_ERR_HANDLE (without @a rows, one of the batches is released, so the rows of the following
 *  batches are not known).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_respond_many(const stepaf_batch_h *batches, int n_batches,
                                               const stepaf_tensor_t *tensors, int n_tensors,
                                               const uint32_t *rows, uint32_t flags,
                                               stepaf_status_t *results_p);

/** Release @a batch: the next operation may overwrite its receive buffers.
 *
 *  If the batch expects no answers, the release completes its operation. If the batch expects
 *  answers and has none, the operation completes at the attention rank with STEPAF_ERR_CANCELED for
 *  this rank.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (also if the batch is already released).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_release(stepaf_batch_h batch);

#ifdef __cplusplus
}
#endif
#endif
