/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_respond_many: distributes the rows of a result to their batches. A batch that cannot be
 * answered keeps its share of rows, so that the batches after it still receive theirs. */
#include <string.h>

#include "api/handles.h"
#include "core/key.h"

/* The result, and how far it has been distributed. */
struct deal {
    const stepaf_tensor_t *tensors;
    int n_tensors;
    uint32_t row_bytes[STEPAF_MAX_TENSORS]; /* 0: not known yet */
    uint64_t at[STEPAF_MAX_TENSORS];        /* where the next batch's rows begin */
};

static void begin(struct deal *deal)
{
    for (int i = 0; i < deal->n_tensors; i++)
        deal->at[i] = 0;
}

static uint32_t pushed_rows(const struct stepaf_batch_obj *batch)
{
    const struct stepaf_remote_plan *remote = batch->remote;

    return remote->n_push && remote->push[0].key->row_bytes
               ? batch->bytes[0] / remote->push[0].key->row_bytes
               : 0;
}

/* Check that the batch expects these tensors, in rows. */
static stepaf_status_t check_tensors(const struct stepaf_batch_obj *batch, const struct deal *deal)
{
    const struct stepaf_remote_plan *remote = batch->remote;

    if (deal->n_tensors != remote->n_pull)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RESPOND,
                                "%d tensors given, %d expected", deal->n_tensors, remote->n_pull);
    for (int i = 0; i < deal->n_tensors; i++) {
        const struct stepaf_remote_plan_pull *pull = &remote->pull[i];
        if (deal->tensors[i].key != pull->key_id)
            return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RESPOND,
                                    "tensor %d has key %llu, expected is %llu", i,
                                    (unsigned long long)deal->tensors[i].key,
                                    (unsigned long long)pull->key_id);
        if (!pull->key || !pull->key->row_bytes ||
            (deal->row_bytes[i] && pull->key->row_bytes != deal->row_bytes[i]))
            return stepaf_error_set(
                STEPAF_ERR_KEY, STEPAF_PHASE_RESPOND,
                "key %llu is not declared here with rows, or with a different row size",
                (unsigned long long)pull->key_id);
    }
    return STEPAF_OK;
}

/* Set the bytes of a row from the first batch that expects these tensors. */
static void learn_rows(struct deal *deal, const stepaf_batch_h *batches, int n_batches)
{
    for (int i = 0; i < deal->n_tensors; i++)
        deal->row_bytes[i] = 0;
    for (int b = 0; b < n_batches && !deal->row_bytes[0]; b++) {
        struct stepaf_batch_obj *batch;
        if (!batches[b] || stepaf_enter_batch(batches[b], &batch))
            continue;
        if (!check_tensors(batch, deal))
            for (int i = 0; i < deal->n_tensors; i++)
                deal->row_bytes[i] = batch->remote->pull[i].key->row_bytes;
        stepaf_leave(stepaf_batch_ctx(batch));
    }
}

/* Skip @a n rows. Sums saturate instead of wrapping round: the end is then beyond every tensor. */
static void pass_rows(struct deal *deal, uint32_t n)
{
    for (int i = 0; i < deal->n_tensors; i++)
        if (__builtin_add_overflow(deal->at[i], (uint64_t)n * deal->row_bytes[i], &deal->at[i]))
            deal->at[i] = UINT64_MAX;
}

/* Compute the rows of the next batch. @a rows: its number of rows; NULL: as many as it has pushed.
 * The rows of batches that cannot be answered need not exist. A NULL handle is
 * STEPAF_ERR_HANDLE, which is not recorded. */
static stepaf_status_t next_slices(struct deal *deal, stepaf_batch_h handle, const uint32_t *rows,
                                   stepaf_tensor_t *slices, bool *is_placed_p)
{
    struct stepaf_batch_obj *batch = NULL;
    uint64_t begins[STEPAF_MAX_TENSORS];

    if (!handle) {
        pass_rows(deal, rows ? *rows : 0);
        *is_placed_p = true;
        return STEPAF_ERR_HANDLE;
    }
    stepaf_status_t status = stepaf_enter_batch(handle, &batch);
    uint32_t n = rows ? *rows : status ? 0 : pushed_rows(batch);

    *is_placed_p = rows || !status;
    if (!status) {
        status = check_tensors(batch, deal);
        stepaf_leave(stepaf_batch_ctx(batch));
    }
    memcpy(begins, deal->at, sizeof(begins[0]) * (size_t)deal->n_tensors);
    pass_rows(deal, n);
    for (int i = 0; i < deal->n_tensors && !status; i++) {
        const stepaf_tensor_t *whole = &deal->tensors[i];
        if (deal->at[i] > whole->bytes)
            return stepaf_error_set(STEPAF_ERR_SIZE, STEPAF_PHASE_RESPOND,
                                    "tensor %d: the rows of the batches exceed its %zu bytes", i,
                                    whole->bytes);
        slices[i] = (stepaf_tensor_t){whole->key, (uint8_t *)whole->data + begins[i],
                                      (size_t)(deal->at[i] - begins[i])};
    }
    return status;
}

/* Check that all rows exist, and that all batches' places are known. */
static stepaf_status_t check_rows(struct deal *deal, const stepaf_batch_h *batches, int n_batches,
                                  const uint32_t *rows)
{
    stepaf_tensor_t slices[STEPAF_MAX_TENSORS];
    bool is_placed;

    begin(deal);
    for (int b = 0; b < n_batches; b++) {
        stepaf_status_t status =
            next_slices(deal, batches[b], rows ? &rows[b] : NULL, slices, &is_placed);
        if (status == STEPAF_ERR_SIZE)
            return status;
        if (!is_placed)
            return stepaf_error_set(STEPAF_ERR_HANDLE, STEPAF_PHASE_RESPOND,
                                    "batch %d is no longer valid: set rows, as the number of its "
                                    "rows is not known otherwise",
                                    b);
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_respond_many(const stepaf_batch_h *batches, int n_batches,
                                    const stepaf_tensor_t *tensors, int n_tensors,
                                    const uint32_t *rows, uint32_t flags,
                                    stepaf_status_t *results_p)
{
    struct deal deal = {.tensors = tensors, .n_tensors = n_tensors};
    stepaf_tensor_t slices[STEPAF_MAX_TENSORS];
    stepaf_error_t first = {.status = STEPAF_OK};
    bool is_placed = true;

    if (!batches || n_batches < 1 || !tensors || n_tensors < 1 || n_tensors > STEPAF_MAX_TENSORS)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RESPOND,
                                "batches or tensors are NULL, none or too many");
    learn_rows(&deal, batches, n_batches);
    stepaf_status_t status = check_rows(&deal, batches, n_batches, rows);
    if (status)
        return status;
    begin(&deal);
    for (int b = 0; b < n_batches; b++) {
        /* If another thread has released a batch since the check, the batches after it are not
         * answered. */
        status = is_placed
                     ? next_slices(&deal, batches[b], rows ? &rows[b] : NULL, slices, &is_placed)
                     : stepaf_handle_bad("batch");
        if (!status)
            status = stepaf_respond(batches[b], slices, n_tensors, flags, NULL);
        if (results_p)
            results_p[b] = status;
        if (status && batches[b] && !first.status)
            first = *stepaf_last_error();
    }
    return first.status ? stepaf_error_raise(&first) : STEPAF_OK;
}
