/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a job that nobody but its environment has started: it joins, exchanges, and says so in
 * one line, "rank R of N: ROLE". With "outlive" rank 0, where all have met, is killed after the
 * first exchange, and the others exchange again. A start that fails is "start: REASON", with exit
 * code 1. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stepaf/stepaf.h>

enum { X = 1, Y = 2, NUMBERS = 1024, BYTES = NUMBERS * sizeof(int) };

static stepaf_context_h ctx;
static int *numbers;

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, stepaf_last_error()->text);
    return 1;
}

static stepaf_status_t join(void)
{
    stepaf_status_t status = stepaf_init(NULL, NULL, &ctx);
    void *memory;

    if (status == STEPAF_OK)
        status = stepaf_key_declare(ctx, X, STEPAF_PUSH, BYTES, NULL);
    if (status == STEPAF_OK)
        status = stepaf_key_declare(ctx, Y, STEPAF_PULL, BYTES, NULL);
    if (status == STEPAF_OK)
        status = stepaf_alloc(ctx, (size_t)(1 + stepaf_size(ctx, STEPAF_GROUP_FFN)) * BYTES,
                              STEPAF_MEM_HOST, &memory);
    if (status == STEPAF_OK) {
        numbers = memory;
        status = stepaf_commit(ctx);
    }
    if (status == STEPAF_OK)
        status = stepaf_barrier(ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT);
    return status;
}

/* To every FFN rank, and back; each doubles. */
static int ask(int round)
{
    int n_ffn = stepaf_size(ctx, STEPAF_GROUP_FFN);
    stepaf_tensor_t push = {X, numbers, BYTES}, *pull = calloc((size_t)n_ffn, sizeof *pull);
    stepaf_request_h request;

    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = 1000 * round + i;
    for (int f = 0; f < n_ffn; f++)
        pull[f] = (stepaf_tensor_t){Y, numbers + (1 + f) * NUMBERS, BYTES};
    int failed = stepaf_push_pull(ctx, &push, 1, pull, n_ffn, &request) ||
                 stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    free(pull);
    if (failed)
        return fail("push_pull");
    for (int i = 0; i < n_ffn * NUMBERS; i++)
        if (numbers[NUMBERS + i] != 2 * numbers[i % NUMBERS]) {
            fprintf(stderr, "wrong numbers\n");
            return 1;
        }
    return 0;
}

static int answer(int n)
{
    for (; n > 0; n--) {
        stepaf_tensor_info_t in = {.size = sizeof in};
        stepaf_tensor_t back = {Y, numbers, BYTES};
        stepaf_request_h request;
        stepaf_batch_h batch;
        int got;
        if (stepaf_recv(ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &got) ||
            stepaf_batch_tensor(batch, 0, &in))
            return fail("recv");
        for (int i = 0; i < NUMBERS; i++)
            numbers[i] = 2 * ((int *)in.data)[i];
        if (stepaf_respond(batch, &back, 1, STEPAF_RESPOND_RELEASE, &request) ||
            stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT))
            return fail("respond");
    }
    return 0;
}

static int exchange(int round, int n_attention)
{
    return stepaf_role(ctx) == STEPAF_ATTENTION ? ask(round) : answer(n_attention);
}

int main(int argc, char **argv)
{
    bool outlive = argc > 1 && strcmp(argv[1], "outlive") == 0;

    if (join() != STEPAF_OK)
        return fail("start");
    int rank = stepaf_rank(ctx, STEPAF_GROUP_WORLD);
    int n_attention = stepaf_size(ctx, STEPAF_GROUP_ATTENTION);
    if (exchange(1, n_attention) ||
        (stepaf_barrier(ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT) && fail("barrier")))
        return 1;
    if (outlive && rank == 0)
        raise(SIGKILL);
    if (outlive && exchange(2, n_attention - 1))
        return 1;
    printf("rank %d of %d: %s\n", rank, stepaf_size(ctx, STEPAF_GROUP_WORLD),
           stepaf_role(ctx) == STEPAF_ATTENTION ? "attention" : "ffn");
    stepaf_finalize(ctx);
    return 0;
}
