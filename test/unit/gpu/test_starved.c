/* SPDX-License-Identifier: Apache-2.0 */
/* The same as api/test_starved for what GPUs take: stream plans whose peers are reached by way of
 * the host, and plans of the host with tensors in GPU memory. The GPU is made up, and nothing is
 * launched. */
#include <stdlib.h>
#include <string.h>

#include <stepaf/stream.h>

#include "cpu_device/cpu_device.h"
#include "plans.h"
#include "starve_ranks.h"
#include "unit.h"

enum { PUSHED = 1, PULLED = 2, BYTES = 5000, DEPTH = 2 };

static int declare(struct starve_rank *rank, uint64_t id, stepaf_direction_t direction)
{
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                               .depth = DEPTH,
                               .mem_kind = STEPAF_MEM_CUDA};

    STARVE_TRY(rank, stepaf_key_declare(rank->ctx, id, direction, BYTES, &key));
    return 0;
}

static int make_plan(struct starve_rank *rank, uint32_t flags, stepaf_plan_h *plan_p)
{
    size_t bytes = (size_t)(1 + STARVE_FFN) * DEPTH * BYTES;
    int n_peers = stepaf_n_peers(rank->ctx);
    stepaf_tensor_t push, pull[STARVE_FFN];

    STARVE_TRY(rank, stepaf_alloc(rank->ctx, bytes, STEPAF_MEM_CUDA, (void **)&rank->memory));
    push = (stepaf_tensor_t){PUSHED, rank->ffn ? NULL : rank->memory, rank->ffn ? 0 : BYTES};
    for (int p = 0; p < n_peers; p++)
        pull[p] = (stepaf_tensor_t){PULLED, rank->memory + (size_t)(1 + p) * DEPTH * BYTES, BYTES};
    if (!rank->ffn || flags)
        STARVE_TRY(rank, plan_create(rank->ctx, &push, 1, pull, n_peers, flags, plan_p));
    return 0;
}

/* Two commits, of a plan each. */
static int play(struct starve_rank *rank, uint32_t flags, enum starve_end *end_p)
{
    stepaf_plan_h plan = NULL;

    for (int i = 0; i < 2; i++) {
        if (declare(rank, PUSHED, STEPAF_PUSH) || declare(rank, PULLED, STEPAF_PULL) ||
            make_plan(rank, flags, &plan) || starve_commit(rank, end_p))
            return 1;
        if (*end_p != STARVE_COMPLETE)
            return 0;
        if (plan)
            STARVE_TRY(rank, stepaf_plan_destroy(plan));
        STARVE_TRY(rank, stepaf_key_withdraw(rank->ctx, PUSHED));
        STARVE_TRY(rank, stepaf_key_withdraw(rank->ctx, PULLED));
        STARVE_TRY(rank, stepaf_free(rank->ctx, rank->memory));
        plan = NULL;
    }
    if (stepaf_barrier(rank->ctx, STEPAF_GROUP_WORLD, -1))
        *end_p = STARVE_LOST;
    return 0;
}

static int play_streams(struct starve_rank *rank, enum starve_end *end_p)
{
    return play(rank, STEPAF_PLAN_STREAM, end_p);
}

static int play_host(struct starve_rank *rank, enum starve_end *end_p)
{
    return play(rank, 0, end_p);
}

/* ThreadSanitizer has nothing to see where a rank has one thread. */
static bool is_looked_at(const char *progress)
{
#ifdef __SANITIZE_THREAD__
    return !strcmp(progress, "thread");
#else
    return progress != NULL;
#endif
}

static void starve(int (*how)(struct starve_rank *rank, enum starve_end *end_p),
                   const char *progress, int first)
{
    if (!is_looked_at(progress))
        return;
    setenv("STEPAF_PROGRESS", progress, 1);
    cpu_device_begin();
    for (int i = first; i < 4; i++) /* victim by victim: once, then for long */
        starve_ranks(&(struct starve_job){.transports = "shm",
                                          .victim = i % 2,
                                          .lasting = i > 1,
                                          .least = 15,
                                          .begin = STARVE_INIT,
                                          .play = how});
    cpu_device_end();
}

static void with_stream_plans(void)
{
    setenv("STEPAF_CUDA_PROXY", "always", 1);
    setenv("STEPAF_CUDA_AHEAD_BYTES", "2000", 1); /* part by part */
    starve(play_streams, "thread", 0);
    unsetenv("STEPAF_CUDA_AHEAD_BYTES");
    unsetenv("STEPAF_CUDA_PROXY");
}

static void with_mailboxes_in_host_memory(void)
{
    setenv("STEPAF_CUDA_MAILBOX", "host", 1);
    starve(play_streams, "inline", 3);
    unsetenv("STEPAF_CUDA_MAILBOX");
}

static void with_mailboxes_in_gpu_memory(void)
{
    starve(play_streams, "inline", 3);
}

static void with_plans_of_the_host(void)
{
    starve(play_host, "inline", 2);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"with stream plans", with_stream_plans},
        {"with mailboxes in host memory", with_mailboxes_in_host_memory},
        {"with mailboxes in GPU memory", with_mailboxes_in_gpu_memory},
        {"with plans of the host", with_plans_of_the_host},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
