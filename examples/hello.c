/* SPDX-License-Identifier: Apache-2.0 */
/* Attention ranks push numbers to every FFN rank; FFN rank f returns them multiplied by f + 1. */
#include <stdio.h>
#include <stdlib.h>

#include <stepaf/mpi.h>
#include <stepaf/stepaf.h>

enum { X = 1, Y = 2, N = 1024, BYTES = N * sizeof(float), LAYERS = 3 }; /* X and Y are keys */

static void check(stepaf_status_t status)
{
    if (status == STEPAF_OK)
        return;
    fprintf(stderr, "%s: %s\n", stepaf_status_name(status), stepaf_last_error()->text);
    exit(1);
}

int main(int argc, char **argv)
{
    stepaf_context_h ctx;
    stepaf_request_h request;
    void *memory;
    MPI_Init(&argc, &argv);
    check(stepaf_init_mpi(MPI_COMM_WORLD, NULL, &ctx)); /* roles: from STEPAF_SPLIT here */
    check(stepaf_key_declare(ctx, X, STEPAF_PUSH, BYTES, NULL));
    check(stepaf_key_declare(ctx, Y, STEPAF_PULL, BYTES, NULL));
    int n_ffn = stepaf_size(ctx, STEPAF_GROUP_FFN), me = stepaf_rank(ctx, STEPAF_GROUP_FFN);
    check(stepaf_alloc(ctx, (size_t)(1 + n_ffn) * BYTES, STEPAF_MEM_HOST, &memory));
    float *x = memory, *y = x + N;
    if (stepaf_role(ctx) == STEPAF_ATTENTION) {
        stepaf_tensor_t push = {X, x, BYTES}, *pull = calloc((size_t)n_ffn, sizeof(*pull));
        stepaf_plan_h plan;
        for (int f = 0; f < n_ffn; f++) /* a buffer for each FFN rank's answer */
            pull[f] = (stepaf_tensor_t){Y, y + f * N, BYTES};
        check(stepaf_plan_create(ctx, &push, 1, pull, n_ffn, 0, &plan));
        check(stepaf_commit(ctx)); /* all ranks: exchanges addresses, once */
        for (int layer = 0; layer < LAYERS; layer++) {
            x[7] = (float)(10 + layer);
            check(stepaf_start(plan, &request)); /* waits for no peer: time for more microbatches */
            check(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
            for (int f = 0; f < n_ffn; f++)
                printf("layer %d: FFN rank %d made %g of %g\n", layer, f, y[f * N + 7], x[7]);
        }
        free(pull);
    } else {
        check(stepaf_commit(ctx));
        for (int left = LAYERS * stepaf_size(ctx, STEPAF_GROUP_ATTENTION); left > 0; left--) {
            stepaf_tensor_t answer = {Y, y, BYTES};
            stepaf_tensor_info_t in = {.size = sizeof(in)};
            stepaf_batch_h batch;
            int n;
            check(stepaf_recv(ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n));
            check(stepaf_batch_tensor(batch, 0, &in)); /* in.data is the receive buffer itself */
            for (int i = 0; i < N; i++)
                y[i] = (float)(me + 1) * ((float *)in.data)[i];
            check(stepaf_respond(batch, &answer, 1, STEPAF_RESPOND_RELEASE, &request));
            check(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)); /* y may be overwritten now */
        }
    }
    stepaf_finalize(ctx);
    return MPI_Finalize();
}
