/* SPDX-License-Identifier: Apache-2.0 */
/* The timed operations of the library. The loops contain only calls of the library. */
#include "lib.h"

#include "fail.h"

/* Start with parameters that differ from the plan, or wait for a slot: an FFN rank may still
 * hold the last batch although its answer has arrived. */
static __attribute__((noinline)) int start_with(struct perf_lib *lib, unsigned place, int stage)
{
    const struct perf_case *c = lib->c;
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_ALL,
                                    .flags = STEPAF_START_WAIT,
                                    .timeout_us = lib->options->run.timeout_us};
    stepaf_status_t status;

    if (c->scatter) {
        params.n_push = c->ffn * c->n_push;
        params.push = lib->slices + place % c->microbatches * (size_t)params.n_push;
    }
    status = stepaf_start_with(lib->plans[stage][place], &params, &lib->requests[place]);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_start_with");
}

int perf_lib_start(void *self, unsigned place, int stage)
{
    struct perf_lib *lib = self;
    stepaf_status_t status;

    if (lib->c->scatter)
        return start_with(lib, place, stage);
    status = stepaf_start(lib->plans[stage][place], &lib->requests[place]);
    if (status == STEPAF_OK)
        return 0;
    if (status == STEPAF_ERR_WOULD_BLOCK)
        return start_with(lib, place, stage);
    return perf_fail_status(status, "stepaf_start");
}

int perf_lib_wait(void *self, unsigned place, int stage)
{
    struct perf_lib *lib = self;
    stepaf_status_t status = stepaf_wait(lib->requests[place], lib->options->run.timeout_us);

    (void)stage;
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_wait");
}

/* Return the microbatch that a batch's keys name. */
static int ask_microbatch(stepaf_batch_h batch, const stepaf_batch_info_t *info, uint64_t *m_p)
{
    stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};
    stepaf_status_t status = info->n_answers > 0 ? stepaf_batch_answer(batch, 0, &tensor)
                                                 : stepaf_batch_tensor(batch, 0, &tensor);

    if (status != STEPAF_OK)
        return perf_fail_status(status, "stepaf_batch_tensor");
    *m_p = tensor.key >> 4;
    return 0;
}

/* Rarely executed: the microbatch of a plan's batches is looked up once. */
static __attribute__((noinline)) int learn_plan(struct perf_lib *lib, stepaf_batch_h batch,
                                                const stepaf_batch_info_t *info)
{
    uint64_t m = 0;

    if ((unsigned)info->attention_rank >= (unsigned)lib->c->attn)
        return perf_fail("a batch arrived from attention rank %d, which does not exist",
                         info->attention_rank);
    if (ask_microbatch(batch, info, &m) != 0)
        return -1;
    if (m >= lib->c->microbatches)
        return perf_fail("a batch arrived from attention rank %d with a key that no rank sends",
                         info->attention_rank);
    if (info->plan < perf_lib_plans(lib->c))
        lib->microbatch_of[(size_t)info->attention_rank * perf_lib_plans(lib->c) + info->plan] =
            (int)m;
    return (int)m;
}

int perf_lib_batch_place(struct perf_lib *lib, stepaf_batch_h batch,
                         const stepaf_batch_info_t *info)
{
    const struct perf_case *c = lib->c;
    uint32_t plans = perf_lib_plans(c);
    int m = -1;

    if (info->plan < plans && (unsigned)info->attention_rank < (unsigned)c->attn)
        m = lib->microbatch_of[(size_t)info->attention_rank * plans + info->plan];
    if (m < 0)
        m = learn_plan(lib, batch, info);
    if (m < 0 || c->depth == 1)
        return m;
    return m + (int)(info->sequence % c->depth * c->microbatches);
}

/* With a single plan every batch is its next one: no lookup, as in a program with one plan. */
static int handle_plain(struct perf_lib *lib, stepaf_batch_h batch)
{
    stepaf_status_t status = stepaf_respond(batch, lib->answers, 1, STEPAF_RESPOND_RELEASE, NULL);

    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_respond");
}

static int handle_timed(struct perf_lib *lib, stepaf_batch_h batch)
{
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_status_t status = stepaf_batch_query(batch, &info);
    int apart = lib->options->release_apart;

    if (status != STEPAF_OK)
        return perf_fail_status(status, "stepaf_batch_query");
    if (info.n_answers > 0) {
        int place = perf_lib_batch_place(lib, batch, &info);

        if (place < 0)
            return -1;
        status = stepaf_respond(
            batch, &lib->answers[(size_t)info.attention_rank * lib->c->window + (unsigned)place], 1,
            apart ? 0 : STEPAF_RESPOND_RELEASE, NULL);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_respond");
        if (!apart)
            return 0;
    }
    status = stepaf_release(batch);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_release");
}

int perf_lib_serve(struct perf_lib *lib, uint64_t n_batches, perf_lib_handle_t handle)
{
    stepaf_from_t from = lib->options->recv_each ? STEPAF_FROM_EACH : STEPAF_FROM_ANY;

    while (n_batches > 0) {
        int n = 0;
        stepaf_status_t status = stepaf_recv(lib->ctx, from, 0, lib->options->run.timeout_us,
                                             lib->batches, lib->n_batches, &n);

        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_recv");
        if ((uint64_t)n > n_batches)
            return perf_fail("stepaf_recv returned %d batches, but %llu were expected", n,
                             (unsigned long long)n_batches);
        for (int i = 0; i < n; i++) {
            if (handle(lib, lib->batches[i]) != 0)
                return -1;
        }
        n_batches -= (uint64_t)n;
    }
    return 0;
}

int perf_lib_run(void *self, struct perf_block *block)
{
    struct perf_lib *lib = self;
    uint64_t ops = block->lead_ops + block->timed_ops;
    int rc;

    if (lib->place->role == STEPAF_FFN)
        rc = perf_lib_serve(lib, perf_lib_batches(lib, ops),
                            lib->is_plain ? handle_plain : handle_timed);
    else
        rc = perf_attend_block(lib->c, lib, perf_lib_start, perf_lib_wait, block);
    lib->started += (uint32_t)(ops / lib->c->microbatches);
    return rc;
}
