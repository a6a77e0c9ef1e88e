/* SPDX-License-Identifier: Apache-2.0 */
/* An FFN rank without a progress thread that waits in a collective call of the bootstrap still
 * answers by its handler: the attention rank comes there only when it has the answer. */
#include <stdlib.h>

#include "pair_rank.h"
#include "unit.h"

static void answer(stepaf_batch_h batch, void *arg)
{
    const struct pair_rank *rank = arg;
    stepaf_tensor_t tensor = {PAIR_PULLED, rank->memory, PAIR_BYTES};

    (void)stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, NULL);
}

static stepaf_status_t wait_in_barrier(const struct pair_rank *rank)
{
    return stepaf_barrier(rank->ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT);
}

static stepaf_status_t wait_in_map_check(const struct pair_rank *rank)
{
    return stepaf_map_check(rank->ctx, STEPAF_TIMEOUT_DEFAULT, NULL);
}

static int answer_while_waiting(const stepaf_boot_t *boot, void *arg)
{
    stepaf_status_t (*wait)(const struct pair_rank *rank) = arg;
    stepaf_request_h request;
    struct pair_rank rank;

    if (pair_open(&rank, boot, "inline"))
        return 1;
    if (rank.ffn)
        RANK_CHECK(boot, stepaf_batch_set_handler(rank.ctx, answer, &rank) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    for (int i = 0; i < 10 && !rank.ffn; i++) {
        RANK_CHECK(boot, stepaf_start(rank.plan, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
    }
    RANK_CHECK(boot, wait(&rank) == STEPAF_OK);
    stepaf_finalize(rank.ctx);
    return 0;
}

static void a_barrier_answers(void)
{
    ranks_expect_processes(2, answer_while_waiting, wait_in_barrier);
}

static void a_map_check_answers(void)
{
    ranks_expect_processes(2, answer_while_waiting, wait_in_map_check);
}

static void nothing_is_to_be_done_elsewhere(void)
{
    CU_ASSERT_EQUAL(stepaf_boot_advance(), INT64_MAX);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a barrier answers", a_barrier_answers},
        {"a map check answers", a_map_check_answers},
        {"nothing is to be done elsewhere", nothing_is_to_be_done_elsewhere},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
