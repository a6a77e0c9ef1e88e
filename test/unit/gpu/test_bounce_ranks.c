/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that exchange GPU memory over transports that carry host memory only. Each has a GPU that
 * is made up; the transports are not. */
#include <stdlib.h>

#include "cpu_device/cpu_device.h"
#include "ranks.h"
#include "unit.h"

#include <stepaf/stepaf.h>

enum { RANKS = 4, PEERS = 2, BYTES = 70001, ROUNDS = 40, PUSHED = 1, PULLED = 2, DEPTH = 2 };

/* The ranks' own, not the context's to close. */
static void keep_open(void *self)
{
    (void)self;
}

static bool is_all(const uint8_t *bytes, uint8_t value)
{
    for (int i = 0; i < BYTES; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

static uint8_t pushed(int rank, int round)
{
    return (uint8_t)(rank * 31 + round);
}

static stepaf_status_t declare(stepaf_context_h ctx, uint64_t id, stepaf_direction_t direction)
{
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                               .mem_kind = STEPAF_MEM_CUDA,
                               .depth = DEPTH};

    return stepaf_key_declare(ctx, id, direction, BYTES, &key);
}

static int attend(const stepaf_boot_t *boot, stepaf_context_h ctx, uint8_t *gpu)
{
    uint8_t *pulled = gpu + BYTES;
    stepaf_tensor_t push = {PUSHED, gpu, BYTES};
    stepaf_tensor_t pull[PEERS] = {{PULLED, pulled, BYTES}, {PULLED, pulled + 2 * BYTES, BYTES}};
    int rank = stepaf_rank(ctx, STEPAF_GROUP_ATTENTION);
    stepaf_plan_h plan;

    RANK_CHECK(boot, !stepaf_plan_create(ctx, &push, 1, pull, PEERS, 0, &plan));
    RANK_CHECK(boot, stepaf_commit(ctx) == STEPAF_OK);
    for (int round = 0; round < ROUNDS; round++) {
        stepaf_request_h request;
        memset(gpu, pushed(rank, round), BYTES);
        RANK_CHECK(boot, stepaf_start(plan, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, 20000000) == STEPAF_OK);
        for (int p = 0; p < PEERS; p++)
            RANK_CHECK(boot, is_all(pulled + (size_t)(2 * p + round % DEPTH) * BYTES,
                                    (uint8_t)(pushed(rank, round) + 100 + p)));
    }
    return 0;
}

static int feed(const stepaf_boot_t *boot, stepaf_context_h ctx, uint8_t *gpu)
{
    int own = stepaf_rank(ctx, STEPAF_GROUP_FFN), n;

    RANK_CHECK(boot, stepaf_commit(ctx) == STEPAF_OK);
    for (int round = 0; round < ROUNDS; round++) {
        stepaf_batch_h batches[PEERS];
        RANK_CHECK(boot, !stepaf_recv(ctx, STEPAF_FROM_EACH, 0, 20000000, batches, PEERS, &n));
        for (int p = 0; p < PEERS; p++) {
            stepaf_tensor_t tensor = {PULLED, gpu + (size_t)p * BYTES, BYTES};
            stepaf_tensor_info_t info = {.size = sizeof(info)};
            RANK_CHECK(boot, stepaf_batch_tensor(batches[p], 0, &info) == STEPAF_OK);
            RANK_CHECK(boot, info.bytes == BYTES && is_all(info.data, pushed(p, round)));
            memset(tensor.data, pushed(p, round) + 100 + own, BYTES);
            RANK_CHECK(boot, !stepaf_respond(batches[p], &tensor, 1, STEPAF_RESPOND_RELEASE, NULL));
        }
    }
    return 0;
}

static int run_one(const stepaf_boot_t *boot, void *arg)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = boot->rank % 2 ? STEPAF_FFN : STEPAF_ATTENTION};
    stepaf_boot_t lent = *boot;
    stepaf_context_h ctx;
    void *gpu;

    lent.close = keep_open;
    setenv("STEPAF_TRANSPORTS", arg, 1);
    cpu_device_begin();
    RANK_CHECK(boot, stepaf_init(&lent, &params, &ctx) == STEPAF_OK);
    RANK_CHECK(boot, !declare(ctx, PUSHED, STEPAF_PUSH) && !declare(ctx, PULLED, STEPAF_PULL));
    RANK_CHECK(boot, stepaf_alloc(ctx, (size_t)5 * BYTES, STEPAF_MEM_CUDA, &gpu) == STEPAF_OK);
    int wrong = (boot->rank % 2 ? feed : attend)(boot, ctx, gpu);
    stepaf_finalize(ctx);
    RANK_CHECK(boot, cpu_device.n_held == 0);
    cpu_device_end();
    return wrong;
}

static void over_shared_memory(void)
{
    ranks_expect_processes(RANKS, run_one, (void *)"shm");
}

static void over_tcp(void)
{
    ranks_expect_processes(RANKS, run_one, (void *)"tcp");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"over shared memory", over_shared_memory},
        {"over TCP", over_tcp},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
