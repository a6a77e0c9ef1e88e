/* SPDX-License-Identifier: Apache-2.0 */
/* One plan with several microbatches in flight. In each layer every FFN rank f answers x with
 * (f + 1) * x, and the sum of the answers is the microbatch's x of the next layer. */
#include <stdio.h>
#include <stdlib.h>

#include <stepaf/mpi.h>
#include <stepaf/stepaf.h>

enum { X = 1, Y = 2, N = 1024, BYTES = N * sizeof(float), LAYERS = 3, DEPTH = 4 };

static void check(stepaf_status_t status)
{
    if (status == STEPAF_OK)
        return;
    fprintf(stderr, "%s: %s\n", stepaf_status_name(status), stepaf_last_error()->text);
    exit(1);
}

/* Operation n belongs to microbatch n mod DEPTH and uses the plan's slot of the same number. */
static void attend(stepaf_context_h ctx, int n_ffn, float *x, float *y)
{
    stepaf_tensor_t push = {X, x, BYTES}, *pull = calloc((size_t)n_ffn, sizeof(*pull));
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = &push, .n_push = 1};
    stepaf_request_h request[DEPTH];
    stepaf_plan_h plan;
    for (int f = 0; f < n_ffn; f++) /* slot 0; slot s is s times max_bytes further on */
        pull[f] = (stepaf_tensor_t){Y, y + f * DEPTH * N, BYTES};
    check(stepaf_plan_create(ctx, &push, 1, pull, n_ffn, 0, &plan));
    for (int i = 0; i < DEPTH * N; i++) /* microbatch m begins with m * N, m * N + 1, ... */
        x[i] = (float)i;
    for (int n = 0; n < (LAYERS + 1) * DEPTH; n++) {
        int m = n % DEPTH;
        if (n >= DEPTH) { /* the microbatch's previous layer; the others stay in flight */
            check(stepaf_wait(request[m], STEPAF_TIMEOUT_DEFAULT));
            for (int i = m * N; i < (m + 1) * N; i++) {
                x[i] = 0;
                for (int f = 0; f < n_ffn; f++)
                    x[i] += y[f * DEPTH * N + i];
            }
        }
        push.data = x + m * N; /* a source has no slots: each start gives its address */
        if (n < LAYERS * DEPTH)
            check(stepaf_start_with(plan, &params, &request[m]));
        else
            printf("microbatch %d: %g\n", m, x[m * N + 7]);
    }
    free(pull);
}

static void serve(stepaf_context_h ctx, float *y)
{
    int me = stepaf_rank(ctx, STEPAF_GROUP_FFN);
    for (int n = LAYERS * DEPTH * stepaf_size(ctx, STEPAF_GROUP_ATTENTION); n > 0; n--) {
        stepaf_tensor_t answer = {Y, y, BYTES};
        stepaf_tensor_info_t in = {.size = sizeof(in)};
        stepaf_request_h request;
        stepaf_batch_h batch;
        int got;
        check(stepaf_recv(ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &got));
        check(stepaf_batch_tensor(batch, 0, &in));
        for (int i = 0; i < N; i++)
            y[i] = (float)(me + 1) * ((float *)in.data)[i];
        check(stepaf_respond(batch, &answer, 1, STEPAF_RESPOND_RELEASE, &request));
        check(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)); /* y may be overwritten now */
    }
}

int main(int argc, char **argv)
{
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DEPTH, .depth = DEPTH};
    stepaf_context_h ctx;
    void *memory;
    MPI_Init(&argc, &argv);
    check(stepaf_init_mpi(MPI_COMM_WORLD, NULL, &ctx));
    check(stepaf_key_declare(ctx, X, STEPAF_PUSH, BYTES, &key));
    check(stepaf_key_declare(ctx, Y, STEPAF_PULL, BYTES, &key));
    int n_ffn = stepaf_size(ctx, STEPAF_GROUP_FFN);
    check(stepaf_alloc(ctx, (size_t)(1 + n_ffn) * DEPTH * BYTES, STEPAF_MEM_HOST, &memory));
    check(stepaf_commit(ctx));
    if (stepaf_role(ctx) == STEPAF_ATTENTION)
        attend(ctx, n_ffn, memory, (float *)memory + DEPTH * N);
    else
        serve(ctx, memory);
    stepaf_finalize(ctx);
    return MPI_Finalize();
}
