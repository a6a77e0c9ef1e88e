/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input: calls on streams at the wrong time, of the wrong rank, with wrong sizes. */
#include "gpu/bad.h"

enum { FILLED = 77 };

/* A handle of another kind. */
static stepaf_plan_h no_plan(void)
{
    return (stepaf_plan_h)(void *)bad_plan.ctx;
}

/* This rank's first call of an operation, and its second. */
static stepaf_status_t first_call(struct hs_job *job)
{
    return job->role == STEPAF_ATTENTION
               ? stepaf_start_on_stream(bad_plan.handle, NULL, bad_plan.stream, NULL)
               : stepaf_recv_on_stream(bad_plan.handle, bad_plan.stream);
}

static stepaf_status_t second_call(struct hs_job *job)
{
    return job->role == STEPAF_ATTENTION
               ? stepaf_wait_on_stream(bad_plan.handle, bad_plan.stream)
               : stepaf_respond_on_stream(bad_plan.handle, NULL, bad_plan.stream);
}

void bad_uncommitted(struct hs_job *job)
{
    stepaf_request_h request = NULL;
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    HS_REFUSED(first_call(job), STEPAF_ERR_STATE);
    HS_REFUSED(second_call(job), STEPAF_ERR_STATE);
    if (job->role == STEPAF_ATTENTION)
        HS_REFUSED(stepaf_start_on_stream(bad_plan.handle, NULL, bad_plan.stream, &request),
                   STEPAF_ERR_STATE);
    HS_TRUE(request == NULL);
    HS_REFUSED(stepaf_plan_tensor(bad_plan.handle, 0, 0, 0, &info), STEPAF_ERR_STATE);
    HS_TRUE(stepaf_plan_bytes(bad_plan.handle, 0) == NULL);
}

void bad_handles(void)
{
    stepaf_plan_h handles[] = {NULL, no_plan()};
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        HS_REFUSED(stepaf_start_on_stream(handles[i], NULL, bad_plan.stream, NULL),
                   STEPAF_ERR_HANDLE);
        HS_REFUSED(stepaf_wait_on_stream(handles[i], bad_plan.stream), STEPAF_ERR_HANDLE);
        HS_REFUSED(stepaf_recv_on_stream(handles[i], bad_plan.stream), STEPAF_ERR_HANDLE);
        HS_REFUSED(stepaf_respond_on_stream(handles[i], NULL, bad_plan.stream), STEPAF_ERR_HANDLE);
        HS_REFUSED(stepaf_plan_tensor(handles[i], 0, 0, 0, &info), STEPAF_ERR_HANDLE);
        HS_REFUSED(stepaf_plan_status(handles[i]), STEPAF_ERR_HANDLE);
        HS_TRUE(stepaf_plan_bytes(handles[i], 0) == NULL);
    }
}

void bad_roles(struct hs_job *job)
{
    if (job->role == STEPAF_ATTENTION) {
        HS_REFUSED(stepaf_recv_on_stream(bad_plan.handle, bad_plan.stream), STEPAF_ERR_ROLE);
        HS_REFUSED(stepaf_respond_on_stream(bad_plan.handle, NULL, bad_plan.stream),
                   STEPAF_ERR_ROLE);
    } else {
        HS_REFUSED(stepaf_start_on_stream(bad_plan.handle, NULL, bad_plan.stream, NULL),
                   STEPAF_ERR_ROLE);
        HS_REFUSED(stepaf_wait_on_stream(bad_plan.handle, bad_plan.stream), STEPAF_ERR_ROLE);
    }
}

static void refuse_start(stepaf_start_params_t params, stepaf_status_t want)
{
    stepaf_request_h request = NULL;

    HS_REFUSED(stepaf_start_on_stream(bad_plan.handle, &params, bad_plan.stream, &request), want);
    HS_TRUE(request == NULL);
}

static void bad_starts(const stepaf_tensor_t *good, int n)
{
    stepaf_tensor_t push[GX_TENSORS];

    for (int i = 0; i < n; i++)
        push[i] = good[i];
    refuse_start((stepaf_start_params_t){.field_mask = STEPAF_START_PARAM_FLAGS, .flags = 1u << 31},
                 STEPAF_ERR_INVALID);
    refuse_start(
        (stepaf_start_params_t){.field_mask = STEPAF_START_PARAM_FLAGS | STEPAF_START_PARAM_TIMEOUT,
                                .flags = STEPAF_START_WAIT,
                                .timeout_us = 1},
        STEPAF_ERR_INVALID);
    refuse_start((stepaf_start_params_t){.field_mask = STEPAF_START_PARAM_PUSH,
                                         .push = push,
                                         .n_push = n - 1},
                 STEPAF_ERR_INVALID);
    refuse_start((stepaf_start_params_t){.field_mask = STEPAF_START_PARAM_PUSH,
                                         .push = push,
                                         .n_push = n + 1},
                 STEPAF_ERR_INVALID);
    refuse_start(
        (stepaf_start_params_t){.field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = -1},
        STEPAF_ERR_INVALID);
    push[n - 1].key++;
    refuse_start(
        (stepaf_start_params_t){.field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = n},
        STEPAF_ERR_INVALID);
    push[n - 1] = good[n - 1];
    push[0].bytes++;
    refuse_start(
        (stepaf_start_params_t){.field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = n},
        STEPAF_ERR_SIZE);
    push[0].bytes = SIZE_MAX;
    refuse_start(
        (stepaf_start_params_t){.field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = n},
        STEPAF_ERR_SIZE);
}

/* With a batch that waits for its answer. */
static void bad_answers(const stepaf_tensor_t *good, int n)
{
    stepaf_tensor_t pull[GX_PEERS * GX_TENSORS];

    for (int i = 0; i < n; i++)
        pull[i] = good[i];
    pull[n - 1].bytes++;
    HS_REFUSED(stepaf_respond_on_stream(bad_plan.handle, pull, bad_plan.stream), STEPAF_ERR_SIZE);
    pull[n - 1].bytes = (size_t)1 << 32; /* is 0 where 32 bits are kept */
    HS_REFUSED(stepaf_respond_on_stream(bad_plan.handle, pull, bad_plan.stream), STEPAF_ERR_SIZE);
    pull[n - 1] = good[n - 1];
    pull[0].key++;
    HS_REFUSED(stepaf_respond_on_stream(bad_plan.handle, pull, bad_plan.stream),
               STEPAF_ERR_INVALID);
}

void bad_sizes(struct hs_job *job)
{
    stepaf_tensor_t good[GX_PEERS * GX_TENSORS];
    bool fixed = bad_plan.fixed;
    int n;

    bad_plan.fixed = true; /* the largest */
    n = gx_out(&bad_plan, 0, good);
    bad_plan.fixed = fixed;
    if (job->role == STEPAF_ATTENTION) {
        bad_starts(good, n);
        HS_OK(gx_start(&bad_plan, NULL, NULL));
        HS_OK(gx_wait(&bad_plan, NULL));
    } else {
        HS_OK(gx_recv(&bad_plan, NULL));
        bad_answers(good, n);
        HS_OK(gx_respond(&bad_plan, NULL));
    }
    bad_plan.done++;
}

/* More than there are slots; and what was never begun. */
void bad_order(struct hs_job *job)
{
    bool attention = job->role == STEPAF_ATTENTION;
    stepaf_request_h request = NULL;

    HS_REFUSED(second_call(job), STEPAF_ERR_STATE);
    for (unsigned k = 0; k < bad_plan.shape.depth; k++)
        HS_OK(attention ? gx_start(&bad_plan, NULL, NULL) : gx_recv(&bad_plan, NULL));
    HS_STATUS(first_call(job), STEPAF_ERR_WOULD_BLOCK);
    if (attention)
        HS_STATUS(stepaf_start_on_stream(bad_plan.handle, NULL, bad_plan.stream, &request),
                  STEPAF_ERR_WOULD_BLOCK);
    HS_TRUE(request == NULL);
    for (unsigned k = 0; k < bad_plan.shape.depth; k++)
        HS_OK(attention ? gx_wait(&bad_plan, NULL) : gx_respond(&bad_plan, NULL));
    HS_REFUSED(second_call(job), STEPAF_ERR_STATE);
    bad_plan.done += bad_plan.shape.depth;
}

/* A captured operation has no request; the capture goes on without it. */
void bad_captures(struct hs_job *job)
{
    stepaf_request_h request = NULL;
    cudaGraph_t graph = NULL;
    size_t n_nodes = FILLED;

    if (job->role != STEPAF_ATTENTION)
        return;
    if (!GX_CUDA(cudaStreamBeginCapture(bad_plan.stream, cudaStreamCaptureModeGlobal)))
        return;
    HS_REFUSED(stepaf_start_on_stream(bad_plan.handle, NULL, bad_plan.stream, &request),
               STEPAF_ERR_INVALID);
    HS_TRUE(request == NULL);
    if (!GX_CUDA(cudaStreamEndCapture(bad_plan.stream, &graph)))
        return;
    GX_CUDA(cudaGraphGetNodes(graph, NULL, &n_nodes));
    HS_INT(n_nodes, ==, 0);
    GX_CUDA(cudaGraphDestroy(graph));
}

/* Streams of another GPU: it is the library or the launch that refuses. */
void bad_streams(struct hs_job *job)
{
    cudaStream_t stream = NULL;
    stepaf_status_t status;
    int n = 0, own = 0;

    if (!GX_CUDA(cudaGetDeviceCount(&n)) || !GX_CUDA(cudaGetDevice(&own)) || n < 2)
        return;
    if (!GX_CUDA(cudaSetDevice((own + 1) % n)))
        return;
    stream = gx_stream();
    GX_CUDA(cudaSetDevice(own));
    if (job->role == STEPAF_ATTENTION)
        status = stepaf_start_on_stream(bad_plan.handle, NULL, stream, NULL);
    else
        status = stepaf_recv_on_stream(bad_plan.handle, stream);
    HS_REFUSED(status, status == STEPAF_ERR_INVALID ? status : STEPAF_ERR_TRANSPORT);
    GX_CUDA(cudaStreamDestroy(stream));
}

void bad_looks(struct hs_job *job)
{
    int n = job->role == STEPAF_ATTENTION ? bad_plan.shape.n_pull : bad_plan.shape.n_push;
    stepaf_tensor_info_t info = {.size = sizeof(info), .key = FILLED};
    unsigned depth = bad_plan.shape.depth;
    stepaf_plan_h plan = bad_plan.handle;

    HS_REFUSED(stepaf_plan_tensor(plan, depth, 0, 0, &info), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_tensor(plan, 0, -1, 0, &info), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_tensor(plan, 0, job->peers, 0, &info), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_tensor(plan, 0, 0, -1, &info), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_tensor(plan, 0, 0, n, &info), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_tensor(plan, 0, 0, 0, NULL), STEPAF_ERR_INVALID);
    HS_INT(info.key, ==, FILLED);
    HS_TRUE(stepaf_plan_bytes(plan, depth) == NULL);
}
