/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks, and tensors in the memory of a device: echoed by a plan on streams, and by one of the
 * host, or by the first alone: stream [--alone]
 *
 * Without any library of the device's: it is one whose memory this process can read and write, and
 * whose streams are addresses, as test/unit/cpu_device. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/stepaf.h>

enum { PUSHED = 1, PULLED = 2, HOST_PUSHED = 3, HOST_PULLED = 4, BYTES = 300000, TIMES = 20 };

static stepaf_context_h ctx;
static unsigned char *in, *out; /* the device's memory */
static char stream;

static void check(stepaf_status_t status, const char *what)
{
    if (status == STEPAF_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, stepaf_status_name(status), stepaf_last_error()->text);
    exit(1);
}

static unsigned char byte_of(unsigned n, size_t i)
{
    return (unsigned char)(n * 31 + i * 7 + (i >> 8) + 1);
}

static void declare(uint64_t key, stepaf_direction_t direction)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_MEM_KIND, .mem_kind = STEPAF_MEM_CUDA};

    check(stepaf_key_declare(ctx, key, direction, BYTES, &params), "key");
}

static void fill(unsigned n)
{
    for (size_t i = 0; i < BYTES; i++) {
        out[i] = byte_of(n, i);
        in[i] = 0;
    }
}

static void look(unsigned n)
{
    for (size_t i = 0; i < BYTES; i++)
        if (in[i] != byte_of(n, i)) {
            fprintf(stderr, "operation %u: byte %zu is %d, not %d\n", n, i, in[i], byte_of(n, i));
            exit(1);
        }
}

static void attend(bool alone)
{
    stepaf_tensor_t push = {PUSHED, out, BYTES}, pull = {PULLED, in, BYTES};
    stepaf_tensor_t host_push = {HOST_PUSHED, out, BYTES}, host_pull = {HOST_PULLED, in, BYTES};
    stepaf_plan_h plan, host_plan = NULL;
    stepaf_request_h request;

    check(stepaf_plan_create(ctx, &push, 1, &pull, 1, STEPAF_PLAN_STREAM, &plan), "plan");
    if (!alone)
        check(stepaf_plan_create(ctx, &host_push, 1, &host_pull, 1, 0, &host_plan), "plan");
    check(stepaf_commit(ctx), "commit");
    for (unsigned n = 0; n < TIMES; n++) {
        fill(n);
        check(stepaf_start_on_stream(plan, NULL, &stream, &request), "start");
        check(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), "wait");
        look(n);
    }
    for (unsigned n = TIMES; n < 2 * TIMES && !alone; n++) {
        fill(n);
        check(stepaf_start(host_plan, &request), "start");
        check(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), "wait");
        look(n);
    }
    check(stepaf_plan_status(plan), "plan");
    printf("%d operations on a stream, %d of the host\n", TIMES, alone ? 0 : TIMES);
}

/* Each tensor is answered from where it has come to. */
static void serve(bool alone)
{
    stepaf_tensor_t answer = {PULLED, in, BYTES}, host_answer = {HOST_PULLED, out, BYTES};
    uint64_t key = PUSHED;
    stepaf_plan_h plan;

    check(stepaf_key_set_recv(ctx, PUSHED, in, BYTES, NULL, 0), "receive buffer");
    if (!alone)
        check(stepaf_key_set_recv(ctx, HOST_PUSHED, out, BYTES, NULL, 0), "receive buffer");
    check(stepaf_plan_create_ffn(ctx, &key, 1, &answer, 1, STEPAF_PLAN_STREAM, &plan), "plan");
    check(stepaf_commit(ctx), "commit");
    for (unsigned n = 0; n < TIMES; n++) {
        check(stepaf_recv_on_stream(plan, &stream), "receive");
        check(stepaf_respond_on_stream(plan, NULL, &stream), "respond");
    }
    for (unsigned n = 0; n < TIMES && !alone; n++) {
        stepaf_request_h request;
        stepaf_batch_h batch;
        int n_batches;
        check(stepaf_recv(ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n_batches),
              "receive");
        check(stepaf_respond(batch, &host_answer, 1, STEPAF_RESPOND_RELEASE, &request), "respond");
        check(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), "wait");
    }
}

int main(int argc, char **argv)
{
    bool alone = argc > 1 && strcmp(argv[1], "--alone") == 0;
    void *memory;

    check(stepaf_init(NULL, NULL, &ctx), "init");
    declare(PUSHED, STEPAF_PUSH);
    declare(PULLED, STEPAF_PULL);
    if (!alone) {
        declare(HOST_PUSHED, STEPAF_PUSH);
        declare(HOST_PULLED, STEPAF_PULL);
    }
    check(stepaf_alloc(ctx, BYTES, STEPAF_MEM_CUDA, &memory), "memory");
    in = memory;
    check(stepaf_alloc(ctx, BYTES, STEPAF_MEM_CUDA, &memory), "memory");
    out = memory;
    if (stepaf_role(ctx) == STEPAF_ATTENTION)
        attend(alone);
    else
        serve(alone);
    check(stepaf_barrier(ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT), "barrier");
    stepaf_finalize(ctx);
    return 0;
}
