/* SPDX-License-Identifier: Apache-2.0 */
/* Verified operations: the attention rank pushes bytes that are unique to the operation, the FFN
 * rank verifies them where they landed and answers with bytes that depend on them, and the
 * attention rank verifies the answer. */
#include "lib.h"

#include <string.h>

#include "check.h"
#include "fail.h"

/* Return the number of the operation in flight at @a place within its plan. */
static uint32_t sequence_of(const struct perf_lib *lib, unsigned place)
{
    const struct perf_case *c = lib->c;

    return lib->started + lib->turns[place] * c->depth + place / c->microbatches;
}

/* All buffers of a key share the sources: wait until the previous operation has sent them. */
static int await_sources(struct perf_lib *lib, unsigned place)
{
    const struct perf_case *c = lib->c;
    unsigned before =
        place >= c->microbatches ? place - c->microbatches : place + c->window - c->microbatches;
    stepaf_status_t status;

    if (c->depth == 1 || (place < c->microbatches && lib->turns[place] == 0))
        return 0; /* it was waited for */
    while ((status = stepaf_request_sent(lib->requests[before])) == STEPAF_INPROGRESS)
        stepaf_progress(lib->ctx);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_request_sent");
}

/* Make new bytes for all tensors that the operation pushes to FFN rank @a f (-1: to all). */
static uint64_t fill_sources(struct perf_lib *lib, unsigned place, int f)
{
    const struct perf_case *c = lib->c;
    unsigned m = place % c->microbatches;
    uint64_t digest = 0;

    for (int t = 0; t < c->n_push; t++) {
        size_t offset;
        size_t bytes = perf_case_slice(c, &c->push[t], f < 0 ? 0 : f, &offset);
        char *data = perf_buffers_push(&lib->buffers, m, t) + offset;

        perf_fill(data, bytes,
                  perf_seed(&(struct perf_origin){.attn = lib->place->index,
                                                  .ffn = f,
                                                  .place = m,
                                                  .sequence = sequence_of(lib, place),
                                                  .tensor = t}));
        digest = perf_digest(digest, data, bytes);
    }
    return digest;
}

static int start_checked(void *self, unsigned place, int stage)
{
    struct perf_lib *lib = self;
    const struct perf_case *c = lib->c;
    uint64_t *digests = lib->digests + (size_t)place * (size_t)c->ffn;

    if (c->stages[stage].n_push == 0) {
        memset(digests, 0, (size_t)c->ffn * sizeof(*digests));
        return perf_lib_start(lib, place, stage);
    }
    if (await_sources(lib, place) != 0)
        return -1;
    if (!c->scatter)
        digests[0] = fill_sources(lib, place, -1);
    for (int f = 0; f < c->ffn; f++)
        digests[f] = c->scatter ? fill_sources(lib, place, f) : digests[0];
    return perf_lib_start(lib, place, stage);
}

static int verify_answer(struct perf_lib *lib, unsigned place, int f)
{
    const struct perf_case *c = lib->c;
    unsigned m = place % c->microbatches;
    size_t expected = perf_case_active(c, f) ? perf_case_slice(c, &c->pull, f, NULL) : 0;
    const char *data = perf_buffers_pull(&lib->buffers, m, f) +
                       place / c->microbatches * perf_case_largest(c, &c->pull, NULL);
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_status_t status = stepaf_request_tensor(lib->requests[place], f, &info);

    if (status != STEPAF_OK)
        return perf_fail_status(status, "stepaf_request_tensor");
    if (info.bytes != expected)
        return perf_fail("FFN rank %d answered %zu bytes instead of %zu", f, info.bytes, expected);
    lib->wrong_bytes +=
        perf_count_wrong(data, expected,
                         perf_seed(&(struct perf_origin){
                             .attn = lib->place->index,
                             .ffn = f,
                             .place = m,
                             .sequence = sequence_of(lib, place),
                             .tensor = -1,
                             .digest = lib->digests[place * (size_t)c->ffn + (size_t)f]}));
    return 0;
}

static int wait_checked(void *self, unsigned place, int stage)
{
    struct perf_lib *lib = self;
    const struct perf_case *c = lib->c;

    if (perf_lib_wait(lib, place, stage) != 0)
        return -1;
    for (int f = 0; f < c->ffn && c->stages[stage].n_pull > 0; f++) {
        if (verify_answer(lib, place, f) != 0)
            return -1;
    }
    if (stage == c->n_stages - 1)
        lib->turns[place]++;
    return 0;
}

/* Check that what arrived is what was declared, with the bytes of its operation. */
static int verify_push(struct perf_lib *lib, const stepaf_batch_info_t *info, unsigned m, int t,
                       const stepaf_tensor_info_t *tensor)
{
    const struct perf_case *c = lib->c;
    const struct perf_tensor *expected = &c->push[t];
    size_t bytes = perf_case_slice(c, expected, lib->place->index, NULL);

    if (tensor->key != perf_lib_key(m, STEPAF_PUSH, t) || tensor->bytes != bytes ||
        tensor->dtype != expected->dtype || tensor->ndim != expected->ndim ||
        (size_t)tensor->shape[0] * (expected->bytes / (size_t)expected->shape[0]) != bytes)
        return perf_fail("tensor %d of attention rank %d arrived with a wrong key, size or shape",
                         t, info->attention_rank);
    lib->wrong_bytes +=
        perf_count_wrong(tensor->data, bytes,
                         perf_seed(&(struct perf_origin){.attn = info->attention_rank,
                                                         .ffn = c->scatter ? lib->place->index : -1,
                                                         .place = m,
                                                         .sequence = info->sequence,
                                                         .tensor = t}));
    return 0;
}

static int answer(struct perf_lib *lib, stepaf_batch_h batch, const stepaf_batch_info_t *info,
                  unsigned place, uint64_t digest)
{
    const struct perf_case *c = lib->c;
    stepaf_tensor_t *tensor = &lib->answers[(size_t)info->attention_rank * c->window + place];
    stepaf_status_t status;

    perf_fill(tensor->data, tensor->bytes,
              perf_seed(&(struct perf_origin){.attn = info->attention_rank,
                                              .ffn = lib->place->index,
                                              .place = place % c->microbatches,
                                              .sequence = info->sequence,
                                              .tensor = -1,
                                              .digest = digest}));
    if (lib->options->corrupt > 0 && ++lib->answered % lib->options->corrupt == 0 &&
        tensor->bytes > 0)
        ((char *)tensor->data)[tensor->bytes / 2] ^= 1;
    status = stepaf_respond(batch, tensor, 1,
                            lib->options->release_apart ? 0 : STEPAF_RESPOND_RELEASE, NULL);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_respond");
}

static int handle_checked(struct perf_lib *lib, stepaf_batch_h batch)
{
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_status_t status = stepaf_batch_query(batch, &info);
    uint64_t digest = 0;
    int place;

    if (status != STEPAF_OK)
        return perf_fail_status(status, "stepaf_batch_query");
    place = perf_lib_batch_place(lib, batch, &info);
    if (place < 0)
        return -1;
    if (info.n_tensors != 0 && info.n_tensors != lib->c->n_push)
        return perf_fail("a batch of attention rank %d has %d tensors instead of %d",
                         info.attention_rank, info.n_tensors, lib->c->n_push);
    for (int t = 0; t < info.n_tensors; t++) {
        stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};

        status = stepaf_batch_tensor(batch, t, &tensor);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_batch_tensor");
        if (verify_push(lib, &info, (unsigned)place % lib->c->microbatches, t, &tensor) != 0)
            return -1;
        digest = perf_digest(digest, tensor.data, tensor.bytes);
    }
    if (info.n_answers > 0 && answer(lib, batch, &info, (unsigned)place, digest) != 0)
        return -1;
    if (info.n_answers > 0 && !lib->options->release_apart)
        return 0;
    status = stepaf_release(batch);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_release");
}

int perf_lib_run_checked(void *self, struct perf_block *block)
{
    struct perf_lib *lib = self;
    uint64_t ops = block->lead_ops + block->timed_ops;
    int rc;

    if (lib->place->role == STEPAF_FFN) {
        rc = perf_lib_serve(lib, perf_lib_batches(lib, ops), handle_checked);
    } else {
        memset(lib->turns, 0, lib->c->window * sizeof(*lib->turns));
        rc = perf_attend_ops(lib->c, lib, start_checked, wait_checked, ops, NULL);
    }
    lib->started += (uint32_t)(ops / lib->c->microbatches);
    return rc;
}
