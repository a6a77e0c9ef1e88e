/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever allocation fails, or system call that takes descriptors, memory or rights, at whichever
 * rank: the call says so, and can be made again, or all ranks come to an end soon. Nothing is left
 * behind. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "starve_ranks.h"
#include "unit.h"

enum { PUSHED = 1, PULLED = 2, LATER = 3, BYTES = 5000, DEPTH = 2, ROUNDS = 3 };

static int declare(struct starve_rank *rank, uint64_t id, stepaf_direction_t direction)
{
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DEPTH, .depth = DEPTH};

    STARVE_TRY(rank, stepaf_key_declare(rank->ctx, id, direction, BYTES, &key));
    return 0;
}

static void pulls_of(const struct starve_rank *rank, stepaf_tensor_t *pull_p)
{
    for (int f = 0; f < STARVE_FFN; f++)
        pull_p[f] =
            (stepaf_tensor_t){PULLED, rank->memory + (size_t)(1 + f) * DEPTH * BYTES, BYTES};
}

static int set_up(struct starve_rank *rank, stepaf_plan_h *plan_p)
{
    size_t bytes = (size_t)(1 + STARVE_FFN) * DEPTH * BYTES;
    stepaf_tensor_t push, pull[STARVE_FFN];

    if (declare(rank, PUSHED, STEPAF_PUSH) || declare(rank, PULLED, STEPAF_PULL))
        return 1;
    STARVE_TRY(rank, stepaf_alloc(rank->ctx, bytes, STEPAF_MEM_HOST, (void **)&rank->memory));
    STARVE_TRY(rank, stepaf_register(rank->ctx, rank->user, DEPTH * BYTES));
    push = (stepaf_tensor_t){PUSHED, rank->memory, BYTES};
    pulls_of(rank, pull);
    if (!rank->ffn)
        STARVE_TRY(rank, stepaf_plan_create(rank->ctx, &push, 1, pull, STARVE_FFN, 0, plan_p));
    else if (rank->boot->rank == 1) /* the other one's are the library's own */
        STARVE_TRY(rank,
                   stepaf_key_set_recv(rank->ctx, PUSHED, rank->user, DEPTH * BYTES, NULL, 0));
    return 0;
}

static void fill(uint8_t *data, unsigned seed)
{
    for (unsigned i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(seed * 31 + i * 7 + i / 251);
}

static bool is_filled(const uint8_t *data, unsigned seed)
{
    uint8_t expected[BYTES];

    fill(expected, seed);
    return !memcmp(data, expected, BYTES);
}

static int serve(struct starve_rank *rank, unsigned seed, enum starve_end *end_p)
{
    stepaf_tensor_t answer = {PULLED, rank->memory, BYTES};
    stepaf_request_h request;
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_batch_h batch;
    int n;

    *end_p = STARVE_LOST;
    if (stepaf_recv(rank->ctx, STEPAF_FROM_ANY, 0, -1, &batch, 1, &n))
        return 0;
    RANK_CHECK(rank->boot, n == 1 && !stepaf_batch_tensor(batch, 0, &info));
    RANK_CHECK(rank->boot, is_filled(info.data, seed));
    fill(rank->memory, seed + (unsigned)rank->boot->rank);
    stepaf_status_t status = stepaf_respond(batch, &answer, 1, 0, &request);
    if (!status)
        status = stepaf_wait(request, -1);
    RANK_CHECK(rank->boot, !stepaf_release(batch));
    if (status == STEPAF_ERR_PEER_LOST) /* since another FFN rank has given it up */
        return 0;
    RANK_CHECK(rank->boot, !status);
    *end_p = STARVE_COMPLETE;
    return 0;
}

/* As soon as the slot's last batch is released. */
static stepaf_status_t push_pull(struct starve_rank *rank, const stepaf_tensor_t *push,
                                 const stepaf_tensor_t *pull, stepaf_request_h *request_p)
{
    time_t began = time(NULL);
    stepaf_status_t status;

    do
        status = stepaf_push_pull(rank->ctx, push, 1, pull, STARVE_FFN, request_p);
    while (status == STEPAF_ERR_WOULD_BLOCK && time(NULL) - began < STARVE_LIMIT_S);
    return status;
}

/* One operation of the plan; of push_pull, if that is NULL. */
static int ask(struct starve_rank *rank, unsigned seed, stepaf_plan_h plan, enum starve_end *end_p)
{
    stepaf_tensor_t push = {PUSHED, rank->user, BYTES}, pull[STARVE_FFN];
    stepaf_start_params_t params = {.field_mask =
                                        STEPAF_START_PARAM_FLAGS | STEPAF_START_PARAM_PUSH,
                                    .flags = STEPAF_START_WAIT,
                                    .push = &push,
                                    .n_push = 1};
    stepaf_request_h request;

    fill(rank->user, seed);
    pulls_of(rank, pull);
    stepaf_status_t status = STEPAF_OK;
    do
        status = plan ? stepaf_start_with(plan, &params, &request)
                      : push_pull(rank, &push, pull, &request);
    while (starve_again(rank, status));
    *end_p = STARVE_LOST;
    if (status == STEPAF_ERR_PEER_LOST) /* after it has answered the last operation */
        return 0;
    RANK_CHECK(rank->boot, !status);
    if (stepaf_wait(request, -1))
        return 0;
    size_t slot = (size_t)stepaf_request_slot(request) * BYTES;
    for (unsigned f = 0; f < STARVE_FFN; f++)
        RANK_CHECK(rank->boot, is_filled((uint8_t *)pull[f].data + slot, seed + 1 + f));
    *end_p = STARVE_COMPLETE;
    return 0;
}

static int exchange(struct starve_rank *rank, unsigned seed, stepaf_plan_h plan,
                    enum starve_end *end_p)
{
    return rank->ffn ? serve(rank, seed, end_p) : ask(rank, seed, plan, end_p);
}

/* As soon as all batches are released. */
static stepaf_status_t take_back(struct starve_rank *rank, stepaf_plan_h *plan_p)
{
    time_t began = time(NULL);
    stepaf_status_t status;

    do {
        status = *plan_p ? stepaf_plan_destroy(*plan_p) : STEPAF_OK;
        if (!status) {
            *plan_p = NULL;
            status = stepaf_key_withdraw(rank->ctx, PULLED);
        }
    } while (status == STEPAF_ERR_STATE && time(NULL) - began < STARVE_LIMIT_S);
    return status;
}

/* Exchanges by a plan and by push_pull, then another commit, of other keys, and one exchange
 * more. */
static int play(struct starve_rank *rank, enum starve_end *end_p)
{
    stepaf_plan_h plan = NULL;

    if (set_up(rank, &plan) || starve_commit(rank, end_p))
        return 1;
    for (unsigned i = 0; i < 2 * ROUNDS && *end_p == STARVE_COMPLETE; i++)
        if (exchange(rank, i, i % 2 ? NULL : plan, end_p))
            return 1;
    if (*end_p != STARVE_COMPLETE)
        return 0;
    STARVE_TRY(rank, take_back(rank, &plan));
    if (declare(rank, PULLED, STEPAF_PULL) || declare(rank, LATER, STEPAF_PUSH) ||
        starve_commit(rank, end_p))
        return 1;
    if (*end_p == STARVE_COMPLETE && exchange(rank, 99, NULL, end_p))
        return 1;
    if (*end_p == STARVE_COMPLETE && stepaf_barrier(rank->ctx, STEPAF_GROUP_WORLD, -1))
        *end_p = STARVE_LOST;
    return 0;
}

static void starve(const char *transports, int victim, bool lasting)
{
    bool again = lasting || strcmp(transports, "shm") != 0;

    starve_ranks(&(struct starve_job){.transports = transports,
                                      .victim = victim,
                                      .lasting = lasting,
                                      .traces = true,
                                      .least = 15,
                                      .begin = again ? STARVE_INIT : 0,
                                      .bytes = (size_t)DEPTH * BYTES,
                                      .play = play});
}

static void at_an_attention_rank(void)
{
    starve("shm", 0, false);
    starve("shm", 0, true);
    starve("tcp", 0, false);
}

static void at_an_ffn_rank(void)
{
    starve("shm", 1, false);
    starve("shm", 1, true);
    starve("tcp", 1, false);
}

/* Any of the calls that take descriptors, memory or rights. */
static void without_the_kernels_help(void)
{
    static const char *const transports[] = {"shm", "tcp", "shm,tcp"};

    for (int i = 0; i < 6; i++)
        starve_ranks(&(struct starve_job){.transports = transports[i / 2],
                                          .victim = i % 2,
                                          .calls = true,
                                          .traces = true,
                                          .least = 5,
                                          .bytes = (size_t)DEPTH * BYTES,
                                          .play = play});
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"at an attention rank", at_an_attention_rank},
        {"at an FFN rank", at_an_ffn_rank},
        {"without the kernel's help", without_the_kernels_help},
        CU_TEST_INFO_NULL,
    };
    setenv("STEPAF_VERDICT", "on", 1);
    return unit_run(tests);
}
