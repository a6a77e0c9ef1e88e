/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input: receiving and answering, at the FFN ranks. */
#include "bad_input.h"

static unsigned char stranger[2 * BYTES];

static void bad_slices(struct hs_job *job)
{
    size_t bytes = (size_t)BYTES * (unsigned)job->attn;
    int twice[2] = {0, 0}, beyond = job->attn, negative = -1, first = 0;
    unsigned char *buffer = NULL;

    if (!HS_OK(stepaf_alloc(job->ctx, bytes, STEPAF_MEM_HOST, (void **)&buffer)))
        return;
    HS_REFUSED(stepaf_key_set_recv(job->ctx, NO_KEY, buffer, bytes, NULL, 0), STEPAF_ERR_KEY);
    HS_REFUSED(stepaf_key_set_recv(job->ctx, PULL, buffer, bytes, NULL, 0), STEPAF_ERR_KEY);
    HS_REFUSED(
        stepaf_key_set_recv(job->ctx, PUSH + SPARE, buffer, bytes - (unsigned)job->attn, NULL, 0),
        STEPAF_ERR_SIZE);
    HS_REFUSED(stepaf_key_set_recv(job->ctx, PUSH + DEEP, buffer, bytes, NULL, 0),
               STEPAF_ERR_SIZE); /* holds one, two are needed */
    HS_REFUSED(stepaf_key_set_recv(job->ctx, PUSH + SPARE, buffer, 2 * BYTES, twice, 2),
               STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_key_set_recv(job->ctx, PUSH + SPARE, buffer, BYTES, &beyond, 1),
               STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_key_set_recv(job->ctx, PUSH + SPARE, buffer, BYTES, &negative, 1),
               STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_key_set_recv(job->ctx, PUSH + SPARE, buffer, BYTES, &first, -1),
               STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_key_set_recv(job->ctx, PUSH + SPARE, buffer, BYTES, NULL, 1),
               STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_key_set_recv(job->ctx, PUSH + SPARE, stranger, BYTES, &first, 1),
               STEPAF_ERR_UNREGISTERED);
    HS_REFUSED(stepaf_key_set_recv(job->ctx, PUSH + SPARE, NULL, BYTES, &first, 1),
               STEPAF_ERR_UNREGISTERED);
    if (job->attn > 1)
        HS_REFUSED(stepaf_key_set_recv(job->ctx, PUSH + SPARE, buffer, bytes - 1, NULL, 0),
                   STEPAF_ERR_INVALID);
    HS_OK(stepaf_free(job->ctx, buffer));
}

void bad_receive(struct hs_job *job)
{
    stepaf_batch_h batches[HS_MAX_RANKS] = {NULL};
    stepaf_context_h ctx = job->ctx;
    struct bad_state state;
    int n = -4;

    if (!is_ffn(job))
        return;
    bad_remember(job, &state);
    HS_REFUSED(stepaf_recv(ctx, (stepaf_from_t)2, 0, 0, batches, 1, &n), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_recv(ctx, (stepaf_from_t)-1, 0, 0, batches, 1, &n), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_recv(ctx, (stepaf_from_t)(1 << 8), 0, 0, batches, 1, &n), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_recv(ctx, STEPAF_FROM_EACH, 2, 0, batches, job->attn, &n),
               STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_recv(ctx, STEPAF_FROM_ANY, STEPAF_RECV_SKIP_LOST, 0, batches, 1, &n),
               STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_recv(ctx, STEPAF_FROM_ANY, 0, 0, batches, 0, &n), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_recv(ctx, STEPAF_FROM_ANY, 0, 0, batches, -1, &n), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_recv(ctx, STEPAF_FROM_ANY, 0, 0, NULL, 1, &n), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_recv(ctx, STEPAF_FROM_ANY, 0, 0, batches, 1, NULL), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_recv(ctx, STEPAF_FROM_EACH, 0, 0, batches, job->attn - 1, &n),
               STEPAF_ERR_INVALID);
    HS_INT(n, ==, -4);
    HS_TRUE(batches[0] == NULL);
    bad_slices(job);
    bad_unchanged(job, &state, "receive");
}

static void refuse(stepaf_batch_h batch, stepaf_tensor_t tensor, int n, uint32_t flags,
                   stepaf_status_t want, int line)
{
    stepaf_tensor_t tensors[2] = {tensor, tensor};
    stepaf_request_h request = NULL;

    if (!HS_REFUSED(stepaf_respond(batch, tensors, n, flags, &request), want) ||
        !HS_TRUE(request == NULL))
        HS_FAILED("answer of line %d", line);
}

/* An answer with wrong (key, data, bytes). */
#define REFUSE(key_, data_, bytes_, n_, flags_, want_) \
    refuse(batch, (stepaf_tensor_t){(key_), (data_), (bytes_)}, (n_), (flags_), (want_), __LINE__)

static stepaf_batch_h take(struct hs_job *job)
{
    stepaf_batch_h batch = NULL;
    int n;

    if (!HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n)))
        return NULL;
    return fx_look(job, batch) ? batch : NULL;
}

void bad_respond(struct hs_job *job)
{
    static unsigned char *data;
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_request_h request = NULL;
    struct bad_state state;

    if (!is_ffn(job)) {
        fx_exchange(&bad_plans[WHOLE]);
        return;
    }
    HS_OK(stepaf_alloc(job->ctx, BYTES, STEPAF_MEM_HOST, (void **)&data));
    for (int a = 0; a < job->attn; a++) {
        stepaf_batch_h batch = take(job);
        bad_remember(job, &state);
        REFUSE(PULL + SPARE, data, BYTES, 1, 0, STEPAF_ERR_INVALID);
        REFUSE(NO_KEY, data, BYTES, 1, 0, STEPAF_ERR_INVALID);
        REFUSE(PULL, data, BYTES, 0, 0, STEPAF_ERR_INVALID);
        REFUSE(PULL, data, BYTES, 2, 0, STEPAF_ERR_INVALID);
        REFUSE(PULL, data, BYTES, -1, 0, STEPAF_ERR_INVALID);
        REFUSE(PULL, data, BYTES, 1, 1u << 1, STEPAF_ERR_INVALID);
        REFUSE(PULL, data, BYTES + 1, 1, 0, STEPAF_ERR_SIZE);
        REFUSE(PULL, data, SIZE_MAX, 1, 0, STEPAF_ERR_SIZE);
        REFUSE(PULL, stranger, BYTES, 1, 0, STEPAF_ERR_UNREGISTERED);
        REFUSE(PULL, NULL, BYTES, 1, 0, STEPAF_ERR_UNREGISTERED);
        REFUSE(PULL, data + 4096 - 1, 2, 1, 0, STEPAF_ERR_UNREGISTERED);
        HS_REFUSED(stepaf_respond(batch, NULL, 1, 0, NULL), STEPAF_ERR_INVALID);
        HS_REFUSED(stepaf_batch_query(batch, NULL), STEPAF_ERR_INVALID);
        HS_REFUSED(stepaf_batch_tensor(batch, 1, &info), STEPAF_ERR_INVALID);
        HS_REFUSED(stepaf_batch_tensor(batch, -1, &info), STEPAF_ERR_INVALID);
        HS_REFUSED(stepaf_batch_tensor(batch, 0, NULL), STEPAF_ERR_INVALID);
        HS_REFUSED(stepaf_batch_answer(batch, 1, &info), STEPAF_ERR_INVALID);
        bad_unchanged(job, &state, "answers");
        HS_OK(fx_answer(job, batch, 0)); /* still possible, once */
        HS_REFUSED(fx_answer(job, batch, 0), STEPAF_ERR_STATE);
        HS_REFUSED(fx_answer(job, batch, STEPAF_RESPOND_RELEASE), STEPAF_ERR_STATE);
        fx_look(job, batch);
        HS_OK(stepaf_release(batch));
        stepaf_tensor_t good = {PULL, data, BYTES};
        HS_REFUSED(stepaf_respond(batch, &good, 1, 0, &request), STEPAF_ERR_HANDLE);
        HS_REFUSED(stepaf_release(batch), STEPAF_ERR_HANDLE);
        HS_TRUE(request == NULL);
    }
}

/* Nothing is sent if the rows do not add up; one bad batch does not stop the others. */
void bad_respond_many(struct hs_job *job)
{
    static unsigned char *data;
    stepaf_status_t results[2] = {STEPAF_OK, STEPAF_OK};
    const uint32_t rows[2] = {BYTES - 1, 1}, over[2] = {BYTES, 1}, huge[2] = {UINT32_MAX, 2};
    stepaf_tensor_t tensor = {PULL, NULL, BYTES};
    stepaf_batch_h batches[2], null_batch[2];
    struct bad_state state;

    if (!is_ffn(job)) {
        stepaf_request_h request = NULL;
        HS_OK(fx_start(&bad_plans[WHOLE], STEPAF_START_WAIT, &request));
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
        return;
    }
    HS_OK(stepaf_alloc(job->ctx, BYTES, STEPAF_MEM_HOST, (void **)&data));
    tensor.data = data;
    for (int a = 0; a < job->attn; a++) {
        batches[0] = batches[1] = null_batch[0] = take(job);
        null_batch[1] = NULL;
        bad_remember(job, &state);
        HS_REFUSED(stepaf_respond_many(batches, 2, &tensor, 1, over, 0, results), STEPAF_ERR_SIZE);
        HS_REFUSED(stepaf_respond_many(batches, 2, &tensor, 1, huge, 0, results), STEPAF_ERR_SIZE);
        HS_REFUSED(stepaf_respond_many(batches, 0, &tensor, 1, rows, 0, results),
                   STEPAF_ERR_INVALID);
        HS_REFUSED(stepaf_respond_many(batches, -1, &tensor, 1, rows, 0, results),
                   STEPAF_ERR_INVALID);
        HS_REFUSED(stepaf_respond_many(NULL, 2, &tensor, 1, rows, 0, results), STEPAF_ERR_INVALID);
        HS_REFUSED(stepaf_respond_many(batches, 1, NULL, 1, rows, 0, results), STEPAF_ERR_INVALID);
        bad_unchanged(job, &state, "answers to many");
        /* The first batch is answered, the second is none, which does not count. */
        HS_OK(stepaf_respond_many(null_batch, 2, &tensor, 1, rows, 0, results));
        HS_OK(results[0]);
        HS_STATUS(results[1], STEPAF_ERR_HANDLE);
        HS_OK(stepaf_release(batches[0]));
    }
}
