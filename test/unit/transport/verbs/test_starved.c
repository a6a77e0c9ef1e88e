/* SPDX-License-Identifier: Apache-2.0 */
/* The same as api/test_starved for RDMA at a commit. The device is made up, and carries nothing
 * between processes: no queue pair of the attention rank can be made ready, so that all go on by
 * TCP. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "starve_ranks.h"
#include "unit.h"
#include "verbs_device.h"

enum { PUSHED = 1, BYTES = 70000, DEPTH = 2 };

static int set_up(struct starve_rank *rank, stepaf_plan_h *plan_p)
{
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DEPTH, .depth = DEPTH};

    STARVE_TRY(rank, stepaf_key_declare(rank->ctx, PUSHED, STEPAF_PUSH, BYTES, &key));
    STARVE_TRY(rank, stepaf_alloc(rank->ctx, BYTES, STEPAF_MEM_HOST, (void **)&rank->memory));
    STARVE_TRY(rank, stepaf_register(rank->ctx, rank->user, BYTES));
    stepaf_tensor_t push = {PUSHED, rank->memory, BYTES};
    if (!rank->ffn)
        STARVE_TRY(rank, stepaf_plan_create(rank->ctx, &push, 1, NULL, 0, 0, plan_p));
    return 0;
}

static int exchange(struct starve_rank *rank, stepaf_plan_h plan, enum starve_end *end_p)
{
    stepaf_request_h request;
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_batch_h batch;
    int n;

    *end_p = STARVE_LOST;
    if (!rank->ffn) {
        memset(rank->memory, 0x5a, BYTES);
        STARVE_TRY(rank, stepaf_start(plan, &request));
        if (stepaf_wait(request, -1))
            return 0;
    } else {
        if (stepaf_recv(rank->ctx, STEPAF_FROM_ANY, 0, -1, &batch, 1, &n))
            return 0;
        RANK_CHECK(rank->boot, !stepaf_batch_tensor(batch, 0, &info));
        RANK_CHECK(rank->boot, ((uint8_t *)info.data)[BYTES - 1] == 0x5a);
        RANK_CHECK(rank->boot, !stepaf_release(batch));
    }
    *end_p = STARVE_COMPLETE;
    return 0;
}

/* Two commits, the second of memory alone. */
static int play(struct starve_rank *rank, enum starve_end *end_p)
{
    stepaf_plan_h plan = NULL;
    void *more;

    verbs_device.refuse_rtr = rank->ffn ? 0 : EHOSTUNREACH;
    if (set_up(rank, &plan))
        return 1;
    for (int i = 0; i < 2; i++) {
        if (starve_commit(rank, end_p))
            return 1;
        if (*end_p == STARVE_COMPLETE && exchange(rank, plan, end_p))
            return 1;
        if (*end_p != STARVE_COMPLETE)
            return 0;
        STARVE_TRY(rank, stepaf_deregister(rank->ctx, rank->user));
        STARVE_TRY(rank, stepaf_alloc(rank->ctx, BYTES, STEPAF_MEM_HOST, &more));
        STARVE_TRY(rank, stepaf_register(rank->ctx, rank->user, BYTES / 2));
    }
    if (stepaf_barrier(rank->ctx, STEPAF_GROUP_WORLD, -1))
        *end_p = STARVE_LOST;
    return 0;
}

static void starve(int victim, bool lasting)
{
    (void)setenv("STEPAF_LOG_LEVEL", "error", 1); /* every link warns that it is not RDMA's */
    verbs_device_reset();
    starve_ranks(&(struct starve_job){.transports = "verbs,tcp",
                                      .victim = victim,
                                      .lasting = lasting,
                                      .least = 15,
                                      .begin = STARVE_INIT,
                                      .bytes = BYTES,
                                      .play = play});
}

static void at_an_attention_rank(void)
{
    starve(0, false);
    starve(0, true);
}

static void at_an_ffn_rank(void)
{
    starve(1, false);
    starve(1, true);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"at an attention rank", at_an_attention_rank},
        {"at an FFN rank", at_an_ffn_rank},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
