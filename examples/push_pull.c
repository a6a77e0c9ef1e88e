/* SPDX-License-Identifier: Apache-2.0 */
/* An attention rank pushes x and pulls y, which an FFN rank computes: y = 2 x. */
#include <stdio.h>
#include <stdlib.h>

#include <stepaf/mpi.h>
#include <stepaf/stepaf.h>

enum { X = 1, Y = 2, N = 1024, BYTES = N * sizeof(float) }; /* X and Y are keys */

static void check(stepaf_status_t status)
{
    if (status == STEPAF_OK)
        return;
    fprintf(stderr, "%s: %s\n", stepaf_status_name(status), stepaf_last_error()->text);
    exit(1);
}

static void serve(stepaf_context_h ctx, float *y)
{
    stepaf_tensor_info_t in = {.size = sizeof(in)};
    stepaf_tensor_t answer = {Y, y, BYTES};
    stepaf_request_h request;
    stepaf_batch_h batch;
    int n;
    check(stepaf_recv(ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n));
    check(stepaf_batch_tensor(batch, 0, &in)); /* in.data is the receive buffer itself */
    for (int i = 0; i < N; i++)
        y[i] = 2 * ((float *)in.data)[i];
    check(stepaf_respond(batch, &answer, 1, STEPAF_RESPOND_RELEASE, &request));
    check(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
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
    check(stepaf_alloc(ctx, 2 * BYTES, STEPAF_MEM_HOST, &memory));
    check(stepaf_commit(ctx)); /* on all ranks: exchanges addresses, once */
    float *x = memory, *y = x + N;
    if (stepaf_role(ctx) == STEPAF_ATTENTION) {
        stepaf_tensor_t push = {X, x, BYTES}, pull = {Y, y, BYTES};
        x[7] = 21;
        check(stepaf_push_pull(ctx, &push, 1, &pull, 1, &request)); /* waits for no peer */
        check(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
        printf("%g\n", y[7]);
    } else {
        serve(ctx, y);
    }
    stepaf_finalize(ctx);
    return MPI_Finalize();
}
