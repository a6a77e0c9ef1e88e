/* SPDX-License-Identifier: Apache-2.0 */
#include "perf/gpu/ours.h"

#include <stdlib.h>
#include <string.h>

#include "perf/clock.h"
#include "perf/fail.h"
#include "perf/lib.h"

static int declare_key(const struct perf_gpu_lib *lib, uint64_t key, stepaf_direction_t direction,
                       const struct perf_tensor *tensor)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DTYPE | STEPAF_KEY_SHAPE |
                                                STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .dtype = tensor->dtype,
                                  .ndim = tensor->ndim,
                                  .depth = lib->c->depth,
                                  .mem_kind = STEPAF_MEM_CUDA};
    stepaf_status_t status;

    memcpy(params.shape, tensor->shape, sizeof(params.shape));
    status = stepaf_key_declare(lib->ctx, key, direction, tensor->bytes, &params);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_key_declare");
}

static int declare_keys(const struct perf_gpu_lib *lib, unsigned m)
{
    const struct perf_case *c = lib->c;

    for (int t = 0; t < c->n_push; t++) {
        if (declare_key(lib, perf_lib_key(m, STEPAF_PUSH, t), STEPAF_PUSH, &c->push[t]) != 0)
            return -1;
    }
    return declare_key(lib, perf_lib_key(m, STEPAF_PULL, 0), STEPAF_PULL, &c->pull);
}

/* Attention rank: set the sources of its pushes, and the destinations of answers. */
static int plan_of_attention(struct perf_gpu_lib *lib, unsigned m, stepaf_tensor_t *pull)
{
    const struct perf_case *c = lib->c;
    stepaf_tensor_t push[PERF_MAX_PUSH];
    stepaf_status_t status;

    for (int t = 0; t < c->n_push; t++)
        push[t] = (stepaf_tensor_t){perf_lib_key(m, STEPAF_PUSH, t),
                                    perf_buffers_push(&lib->buffers, m, t), c->push[t].bytes};
    for (int f = 0; f < c->ffn; f++)
        pull[f] = (stepaf_tensor_t){perf_lib_key(m, STEPAF_PULL, 0),
                                    perf_buffers_pull(&lib->buffers, m, f), c->pull.bytes};
    status = stepaf_plan_create(lib->ctx, push, c->n_push, pull, c->ffn, STEPAF_PLAN_STREAM,
                                &lib->plans[m]);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_plan_create");
}

/* FFN rank: set the keys that it receives, whose buffers are registered, and the sources of its
 * answers. */
static int plan_of_ffn(struct perf_gpu_lib *lib, unsigned m, stepaf_tensor_t *pull)
{
    const struct perf_case *c = lib->c;
    unsigned any = lib->gpu->options->recv_each ? 0 : STEPAF_PLAN_ANY;
    uint64_t keys[PERF_MAX_PUSH];
    stepaf_status_t status;

    for (int t = 0; t < c->n_push; t++) {
        keys[t] = perf_lib_key(m, STEPAF_PUSH, t);
        status = stepaf_key_set_recv(lib->ctx, keys[t], perf_buffers_recv(&lib->buffers, m, t),
                                     (size_t)c->attn * lib->buffers.push_stride[t], NULL, 0);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_key_set_recv");
    }
    for (int a = 0; a < c->attn; a++)
        pull[a] = (stepaf_tensor_t){perf_lib_key(m, STEPAF_PULL, 0),
                                    perf_gpu_answer(&lib->buffers, a, m), c->pull.bytes};
    status = stepaf_plan_create_ffn(lib->ctx, keys, c->n_push, pull, c->attn,
                                    STEPAF_PLAN_STREAM | any, &lib->plans[m]);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_plan_create_ffn");
}

static int get_memory(struct perf_gpu_lib *lib)
{
    stepaf_status_t status;
    void *memory;

    perf_buffers_lay_out(lib->c, lib->gpu->place, &lib->buffers);
    if (lib->gpu->options->user_memory) {
        if (perf_gpu_try(cudaMalloc(&lib->own, lib->buffers.bytes)) != 0)
            return -1;
        memory = lib->own;
        status = stepaf_register(lib->ctx, memory, lib->buffers.bytes);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_register");
    } else {
        status = stepaf_alloc(lib->ctx, lib->buffers.bytes, STEPAF_MEM_CUDA, &memory);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_alloc");
    }
    lib->buffers.base = memory;
    return 0;
}

static int make_waits(struct perf_gpu_lib *lib)
{
    int lowest, highest;

    if (perf_gpu_try(cudaDeviceGetStreamPriorityRange(&lowest, &highest)) != 0 ||
        perf_gpu_try(cudaEventCreateWithFlags(&lib->began, cudaEventDisableTiming)) != 0 ||
        perf_gpu_try(cudaEventCreateWithFlags(&lib->waited, cudaEventDisableTiming)) != 0)
        return -1;
    for (unsigned m = 0; m < lib->c->microbatches; m++) {
        if (perf_gpu_try(
                cudaStreamCreateWithPriority(&lib->waits[m], cudaStreamNonBlocking, highest)) != 0)
            return -1;
    }
    return 0;
}

static int prepare(struct perf_gpu_lib *lib)
{
    const struct perf_case *c = lib->c;
    int attention = lib->gpu->place->role == STEPAF_ATTENTION;
    stepaf_tensor_t *pull = calloc((size_t)c->attn + (size_t)c->ffn, sizeof(*pull));
    int rc = pull != NULL ? get_memory(lib) : perf_fail("out of memory");

    if (rc == 0 && attention && perf_gpu_one_way(lib->gpu) && c->depth > 1)
        rc = make_waits(lib);
    for (unsigned m = 0; m < c->microbatches && rc == 0; m++) {
        rc = declare_keys(lib, m);
        if (rc == 0)
            rc = attention ? plan_of_attention(lib, m, pull) : plan_of_ffn(lib, m, pull);
    }
    free(pull);
    return rc;
}

int perf_gpu_lib_open(struct perf_gpu *gpu, const struct perf_case *c, struct perf_gpu_lib *lib_p)
{
    stepaf_params_t params;
    stepaf_status_t status;

    *lib_p = (struct perf_gpu_lib){.gpu = gpu, .c = c};
    perf_place_params(gpu->options, &params);
    status = gpu->job->join(gpu->job, &params, &lib_p->ctx);
    if (perf_job_agree(gpu->job,
                       status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_init")) != 0)
        goto err_close;
    if (perf_job_agree(gpu->job, prepare(lib_p)) != 0)
        goto err_close;
    status = stepaf_commit(lib_p->ctx);
    if (perf_job_agree(gpu->job,
                       status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_commit")) != 0)
        goto err_close;
    if (perf_job_agree(gpu->job, gpu->options->check ? perf_gpu_proof_open(lib_p) : 0) != 0)
        goto err_close;
    return 0;

err_close:
    perf_gpu_lib_close(lib_p);
    return -1;
}

void perf_gpu_lib_close(struct perf_gpu_lib *lib)
{
    stepaf_finalize(lib->ctx);
    perf_gpu_proof_close(lib);
    for (unsigned m = 0; m < PERF_GPU_STREAMS; m++) {
        if (lib->waits[m] != NULL)
            cudaStreamDestroy(lib->waits[m]);
    }
    if (lib->began != NULL)
        cudaEventDestroy(lib->began);
    if (lib->waited != NULL)
        cudaEventDestroy(lib->waited);
    cudaFree(lib->own);
    memset(lib, 0, sizeof(*lib));
}

int perf_gpu_lib_status(void *self)
{
    const struct perf_gpu_lib *lib = self;

    for (unsigned m = 0; m < lib->c->microbatches; m++) {
        stepaf_status_t status = stepaf_plan_status(lib->plans[m]);

        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_plan_status");
    }
    return 0;
}

static int wait_on(const struct perf_gpu_lib *lib, unsigned m, cudaStream_t stream)
{
    stepaf_status_t status = stepaf_wait_on_stream(lib->plans[m], stream);

    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_wait_on_stream");
}

/* Let @a to continue when @a from has reached this point. */
static int join(cudaEvent_t event, cudaStream_t from, cudaStream_t to)
{
    return perf_gpu_try(cudaEventRecord(event, from)) != 0 ||
                   perf_gpu_try(cudaStreamWaitEvent(to, event, 0)) != 0
               ? -1
               : 0;
}

/* Wait for the oldest operation, before the next work of @a stream. */
static int wait_beside(const struct perf_gpu_lib *lib, unsigned m, cudaStream_t stream)
{
    cudaStream_t beside = lib->waits[m];

    if (beside == NULL)
        return wait_on(lib, m, stream);
    return wait_on(lib, m, beside) != 0 ? -1 : join(lib->waited, beside, stream);
}

/* Plans with peers reached through the host have slots for this many operations on their streams
 * only. */
static int has_room(stepaf_status_t status, const struct perf_gpu_lib *lib, int64_t *since_ns_p)
{
    int64_t now_ns = perf_now_ns();

    if (status != STEPAF_ERR_WOULD_BLOCK)
        return 1;
    if (*since_ns_p == 0)
        *since_ns_p = now_ns;
    return now_ns - *since_ns_p > lib->gpu->timeout_us * 1000;
}

static stepaf_status_t start(const struct perf_gpu_lib *lib, unsigned m, cudaStream_t stream)
{
    stepaf_status_t status;
    int64_t since_ns = 0;

    do
        status = stepaf_start_on_stream(lib->plans[m], NULL, stream, NULL);
    while (!has_room(status, lib, &since_ns));
    return status;
}

static stepaf_status_t receive(const struct perf_gpu_lib *lib, unsigned m, cudaStream_t stream)
{
    stepaf_status_t status;
    int64_t since_ns = 0;

    do
        status = stepaf_recv_on_stream(lib->plans[m], stream);
    while (!has_room(status, lib, &since_ns));
    return status;
}

/* As many operations in flight as the plan has slots. */
static int attend(const struct perf_gpu_lib *lib, unsigned m, uint64_t ops, cudaStream_t stream)
{
    uint64_t depth = lib->c->depth;

    if (lib->waits[m] != NULL && join(lib->began, stream, lib->waits[m]) != 0)
        return -1;
    for (uint64_t i = 0; i < ops + depth; i++) {
        stepaf_status_t status;

        if (i >= depth && wait_beside(lib, m, stream) != 0)
            return -1;
        if (i >= ops)
            continue;
        status = start(lib, m, stream);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_start_on_stream");
    }
    return 0;
}

/* A batch is from all attention ranks, or from any one. */
static int serve(const struct perf_gpu_lib *lib, unsigned m, uint64_t ops, cudaStream_t stream)
{
    uint64_t batches = lib->gpu->options->recv_each ? ops : ops * (uint64_t)lib->c->attn;

    for (uint64_t i = 0; i < batches; i++) {
        stepaf_status_t status = receive(lib, m, stream);

        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_recv_on_stream");
        status = stepaf_respond_on_stream(lib->plans[m], NULL, stream);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_respond_on_stream");
    }
    return 0;
}

int perf_gpu_lib_enqueue(void *self, unsigned m, uint64_t ops, cudaStream_t stream)
{
    const struct perf_gpu_lib *lib = self;

    return lib->gpu->place->role == STEPAF_ATTENTION ? attend(lib, m, ops, stream)
                                                     : serve(lib, m, ops, stream);
}
