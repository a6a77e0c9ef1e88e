/* SPDX-License-Identifier: Apache-2.0 */
/* Batches, FFN side: receive, respond, release. */
#ifndef STEPAF_BATCH_H
#define STEPAF_BATCH_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** From whom to receive. */
typedef enum stepaf_from {
    STEPAF_FROM_ANY = 0, /* the next batch of any attention rank, in order of arrival */
    STEPAF_FROM_EACH = 1 /* the next batch of each attention rank of the mesh, in rank order */
} stepaf_from_t;

enum {
    STEPAF_RECV_SKIP_LOST = 1 << 0 /* with FROM_EACH: a lost rank gives a NULL batch */
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
    int n_tensors;      /* pushed; look at each with stepaf_batch_tensor */
    int n_answers;      /* expected in answer; look at each with stepaf_batch_answer */
} stepaf_batch_info_t;

/** Called for each batch that arrives, instead of stepaf_recv. It may call any function on FFN
 *  ranks except the collective ones; batches that it does not release stay valid after it. */
typedef void (*stepaf_batch_cb_t)(stepaf_batch_h batch, void *arg);

/** Receive: one batch from any attention rank, or one from each.
 *  @param flags      STEPAF_RECV_*; 0 for none.
 *  @param batches_p  FROM_ANY: up to @a capacity batches that are there, at least one. FROM_EACH:
 *                    one for each attention rank of the mesh, peer by peer (stepaf_peer_rank);
 *                    capacity must be stepaf_n_peers at least.
 *  @param n_p        how many.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_INVALID; STEPAF_ERR_STATE
 *  (not committed, or a handler is set); STEPAF_ERR_TIMEOUT (nothing taken); STEPAF_ERR_PEER_LOST
 *  (nothing taken; FROM_ANY: every attention rank is lost and nothing is left; FROM_EACH: one
 *  that has no batch left is lost). Blocks for at most @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_recv(stepaf_context_h ctx, stepaf_from_t from, uint32_t flags,
                                       int64_t timeout_us, stepaf_batch_h *batches_p, int capacity,
                                       int *n_p);

/** Call @a handler for every batch from now on; NULL goes back to stepaf_recv. In inline mode it
 *  runs inside stepaf_progress and the waiting calls, else in the progress thread; never twice at
 *  once. When this has returned STEPAF_OK, no call of the handler before is under way (but the
 *  caller's own, where the handler itself calls this), and what @a arg was may be freed.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_TIMEOUT (@a handler is set, but a
 *  call of the one before is still under way). Blocks for at most STEPAF_TIMEOUT_US. */
STEPAF_API stepaf_status_t stepaf_batch_set_handler(stepaf_context_h ctx, stepaf_batch_cb_t handler,
                                                    void *arg);

/** Describe @a batch.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (released already, among others). Never blocks. */
STEPAF_API stepaf_status_t stepaf_batch_query(stepaf_batch_h batch, stepaf_batch_info_t *info_p);

/** Describe pushed tensor @a index of @a batch, in plan order.
 *  @param info_p  data aliases the receive buffer until the batch is released.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (index). Never blocks. */
STEPAF_API stepaf_status_t stepaf_batch_tensor(stepaf_batch_h batch, int index,
                                               stepaf_tensor_info_t *info_p);

/** Describe expected answer @a index of @a batch: its key, shape and largest bytes; data is NULL.
 *  @return as stepaf_batch_tensor. Never blocks. */
STEPAF_API stepaf_status_t stepaf_batch_answer(stepaf_batch_h batch, int index,
                                               stepaf_tensor_info_t *info_p);

/** Answer @a batch: write @a tensors into the attention rank's pull destinations and tell it.
 *
 *  @param tensors    as many as the batch expects, in its order; keys must match; each at most the
 *                    expected bytes; 0 bytes are allowed.
 *  @param flags      STEPAF_RESPOND_*.
 *  @param request_p  NULL, or waited for before the sources are overwritten. Without it they may
 *                    be reused once the next batch of the same plan slot has arrived. The
 *                    request is valid until the slot's next response, also after the release. If
 *                    the attention rank destroys the plan, or a commit ends it, before that, it had
 *                    the answer: stepaf_wait, stepaf_test and stepaf_request_sent return STEPAF_OK
 *                    from then on, and stepaf_wait_any passes over it.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (released, among others); STEPAF_ERR_INVALID (count,
 *  flags, key); STEPAF_ERR_SIZE; STEPAF_ERR_UNREGISTERED; STEPAF_ERR_STATE (answered already);
 *  STEPAF_ERR_CANCELED, STEPAF_ERR_PEER_LOST (nobody waits for it any more: only release it).
 *  Nothing was sent on failure. Never blocks. */
STEPAF_API stepaf_status_t stepaf_respond(stepaf_batch_h batch, const stepaf_tensor_t *tensors,
                                          int n_tensors, uint32_t flags,
                                          stepaf_request_h *request_p);

/** Answer @a n_batches batches with consecutive row slices of the same tensors: the first batch
 *  gets the first rows, and so on.
 *  @param batches    all expect the same number of tensors.
 *  @param tensors    n_tensors; a row is the declared shape's bytes without its first dimension.
 *  @param rows       rows for each batch; NULL: as many as its first pushed tensor has.
 *  @param results_p  NULL, or n_batches results, as stepaf_respond.
 *  @return STEPAF_OK if all were sent, else the first failure; STEPAF_ERR_SIZE if the rows add up
 *  to more than a tensor has (nothing sent). A batch's failure does not stop the others. */
STEPAF_API stepaf_status_t stepaf_respond_many(const stepaf_batch_h *batches, int n_batches,
                                               const stepaf_tensor_t *tensors, int n_tensors,
                                               const uint32_t *rows, uint32_t flags,
                                               stepaf_status_t *results_p);

/** Let go of @a batch: its receive buffers may be overwritten by the attention rank's next
 *  operation. A batch that was not answered counts as answered with nothing if it expects nothing,
 *  else its operation completes at the attention rank with STEPAF_ERR_CANCELED for this rank.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE (released already, among others). Never blocks. */
STEPAF_API stepaf_status_t stepaf_release(stepaf_batch_h batch);

#ifdef __cplusplus
}
#endif
#endif
