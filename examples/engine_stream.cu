/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of engine.c on CUDA streams: a step of all layers, with three microbatches in flight,
 * is captured into a graph, which is then launched for each step. The host only launches. Each FFN
 * rank receives all rows, and answers with its share of the sum. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include <stepaf/stepaf.h>

enum { STEPS = 5, LAYERS = 6, MICROBATCHES = 3, N = 48 * 256, BYTES = N * sizeof(float) };
enum { X = 1, Y = 2, KEYS = 10 }; /* of microbatch m: m * KEYS + X and so on */

static stepaf_context_h ctx;
static stepaf_plan_h plan[MICROBATCHES];
static int n_attention, n_ffn, me;

static void check(stepaf_status_t status)
{
    if (status == STEPAF_OK)
        return;
    fprintf(stderr, "%s: %s\n", stepaf_status_name(status), stepaf_last_error()->text);
    exit(1);
}

static void check_cuda(cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s\n", cudaGetErrorString(error));
    exit(1);
}

static float *allocate(size_t bytes)
{
    void *memory;
    check(stepaf_alloc(ctx, bytes, STEPAF_MEM_CUDA, &memory)); /* zeroed */
    return (float *)memory;
}

/* The model. FFN rank f answers with its share of the total sum; all numbers are exact. */
__host__ __device__ static float attention(float x)
{
    return 0.5F * x + 1;
}
__host__ __device__ static float experts(float x, int layer, int f)
{
    return 0.25F * x - (float)(layer * f);
}

/* y has the answers of all FFN ranks: add them to x, except in the first layer, and continue. */
__global__ static void attention_kernel(float *x, const float *y, int n_answers, int is_last)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float sum = x[i];
    for (int f = 0; f < n_answers; f++)
        sum += y[(size_t)f * N + i];
    x[i] = is_last ? sum : attention(sum);
}

__global__ static void experts_kernel(float *y, const float *x, int layer, int f)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        y[i] = experts(x[i], layer, f);
}

static float *x[MICROBATCHES], *y[MICROBATCHES]; /* y: a buffer for each peer */
static const float *in[MICROBATCHES][64]; /* of an FFN rank: where it receives from each peer */

/* A step of an attention rank: no call waits. While the stream waits for one microbatch, the others
 * are in flight or with the FFN ranks. */
static void attend(cudaStream_t stream)
{
    for (int layer = 0; layer <= LAYERS; layer++)
        for (int m = 0; m < MICROBATCHES; m++) {
            if (layer > 0)
                check(stepaf_wait_on_stream(plan[m], stream));
            attention_kernel<<<(N + 255) / 256, 256, 0, stream>>>(x[m], y[m], layer > 0 ? n_ffn : 0,
                                                                  layer == LAYERS);
            if (layer < LAYERS)
                check(stepaf_start_on_stream(plan[m], NULL, stream, NULL));
        }
}

/* A step of an FFN rank: each batch has the rows of all attention ranks. */
static void serve(cudaStream_t stream)
{
    for (int layer = 0; layer < LAYERS; layer++)
        for (int m = 0; m < MICROBATCHES; m++) {
            check(stepaf_recv_on_stream(plan[m], stream));
            for (int a = 0; a < n_attention; a++)
                experts_kernel<<<(N + 255) / 256, 256, 0, stream>>>(y[m] + (size_t)a * N, in[m][a],
                                                                    layer, me);
            check(stepaf_respond_on_stream(plan[m], NULL, stream));
        }
}

/* Allocate memory and create plans, before the commit. */
static void prepare(int m, bool is_attention)
{
    int n_peers = stepaf_n_peers(ctx);
    uint64_t key = (uint64_t)m * KEYS + X;
    stepaf_tensor_t push, *pull = (stepaf_tensor_t *)calloc((size_t)n_peers, sizeof(*pull));
    x[m] = allocate(BYTES);
    y[m] = allocate((size_t)n_peers * BYTES);
    push.key = key;
    push.data = x[m];
    push.bytes = BYTES;
    for (int p = 0; p < n_peers;
         p++) { /* destinations of an attention rank, sources of an FFN rank */
        pull[p].key = (uint64_t)m * KEYS + Y;
        pull[p].data = y[m] + (size_t)p * N;
        pull[p].bytes = BYTES;
    }
    if (is_attention)
        check(stepaf_plan_create(ctx, &push, 1, pull, n_peers, STEPAF_PLAN_STREAM, &plan[m]));
    else
        check(stepaf_plan_create_ffn(ctx, &key, 1, pull, n_peers, STEPAF_PLAN_STREAM, &plan[m]));
    free(pull);
}

/* The count of numbers, over all microbatches, that differ from one process's result for zeros. */
static int wrong(void)
{
    static float got[N];
    float sum = 0;
    int n = 0;
    for (int layer = 0; layer < STEPS * LAYERS; layer++) {
        float at = attention(sum);
        sum = at;
        for (int f = 0; f < n_ffn; f++)
            sum += experts(at, layer % LAYERS, f);
    }
    for (int m = 0; m < MICROBATCHES; m++) {
        check_cuda(cudaMemcpy(got, x[m], BYTES, cudaMemcpyDeviceToHost));
        for (int i = 0; i < N; i++)
            n += got[i] != sum;
    }
    return n;
}

int main(void)
{
    stepaf_key_params_t params = {};
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t step;
    int n_gpus;
    params.field_mask = STEPAF_KEY_MEM_KIND;
    params.mem_kind = STEPAF_MEM_CUDA;
    check(stepaf_init(NULL, NULL, &ctx));
    n_attention = stepaf_size(ctx, STEPAF_GROUP_ATTENTION);
    n_ffn = stepaf_size(ctx, STEPAF_GROUP_FFN);
    bool is_attention = stepaf_role(ctx) == STEPAF_ATTENTION;
    me = stepaf_rank(ctx, is_attention ? STEPAF_GROUP_ATTENTION : STEPAF_GROUP_FFN);
    check_cuda(cudaGetDeviceCount(&n_gpus));
    check_cuda(cudaSetDevice(stepaf_rank(ctx, STEPAF_GROUP_WORLD) %
                             n_gpus)); /* where all are on one node */
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int m = 0; m < MICROBATCHES; m++) {
        check(stepaf_key_declare(ctx, (uint64_t)m * KEYS + X, STEPAF_PUSH, BYTES, &params));
        check(stepaf_key_declare(ctx, (uint64_t)m * KEYS + Y, STEPAF_PULL, BYTES, &params));
        prepare(m, is_attention);
    }
    check(stepaf_commit(ctx));
    for (int m = 0; m < MICROBATCHES && !is_attention; m++)
        for (int a = 0; a < n_attention; a++) {
            stepaf_tensor_info_t info = {};
            info.size = sizeof(info);
            check(stepaf_plan_tensor(plan[m], 0, a, 0, &info));
            in[m][a] = (const float *)info.data;
        }
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (is_attention)
        attend(stream);
    else
        serve(stream);
    check_cuda(cudaStreamEndCapture(stream, &graph));
    check_cuda(cudaGraphInstantiateWithFlags(&step, graph, 0));
    for (int i = 0; i < STEPS; i++)
        check_cuda(cudaGraphLaunch(step, stream));
    /* Waits on streams have deadlines: if a peer is lost the stream completes all the same, and the
     * plans name the peer. */
    check_cuda(cudaStreamSynchronize(stream));
    for (int m = 0; m < MICROBATCHES; m++)
        check(stepaf_plan_status(plan[m]));
    if (is_attention)
        printf("attention rank %d: %d of %d wrong after %d steps\n", me, wrong(), MICROBATCHES * N,
               STEPS);
    check(stepaf_barrier(ctx, STEPAF_GROUP_WORLD,
                         STEPAF_TIMEOUT_DEFAULT)); /* no rank leaves before the last answer */
    check_cuda(cudaGraphExecDestroy(step));
    check_cuda(cudaGraphDestroy(graph));
    check_cuda(cudaStreamDestroy(stream));
    stepaf_finalize(ctx);
    return 0;
}
