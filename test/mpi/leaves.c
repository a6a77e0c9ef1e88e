/* SPDX-License-Identifier: Apache-2.0 */
/* An FFN rank finalizes while others push into memory of its own: that is its own again then, and
 * nobody writes to it any more. Some of the pushes find nobody, which they are told.
 *
 * --rounds N: of init, pushes and finalize. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { KEY = 7, DEPTH = 4, BYTES = 4 << 20, MOST_ROUNDS = 40, SPREAD_US = 3000, CALM_US = 20000 };

static bool open_round(struct hs_job *job, int round)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT, .split = job->split};
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DEPTH, .depth = DEPTH};

    if (!HS_OK(hs_init(job, round, &params, &job->ctx)))
        return false;
    job->role = stepaf_role(job->ctx);
    job->peers = stepaf_n_peers(job->ctx);
    return HS_OK(stepaf_key_declare(job->ctx, KEY, STEPAF_PUSH, BYTES, &key));
}

/* What peers have left on their way comes while the memory is in other use. */
static void leave(struct hs_job *job, unsigned char *memory, size_t bytes, int round)
{
    size_t wrong = 0;

    if (!HS_OK(stepaf_register(job->ctx, memory, bytes)) ||
        !HS_OK(stepaf_key_set_recv(job->ctx, KEY, memory, bytes, NULL, 0)) ||
        !HS_OK(stepaf_commit(job->ctx)) || !hs_pause(job))
        return;
    hs_sleep_us((int64_t)(hs_mix((uint64_t)round) % SPREAD_US));
    stepaf_finalize(job->ctx);
    job->ctx = NULL;
    memset(memory, 0x5a, bytes);
    hs_sleep_us(CALM_US);
    for (size_t i = 0; i < bytes; i++)
        wrong += memory[i] != 0x5a;
    HS_INT(wrong, ==, 0);
}

static void push(struct hs_job *job, unsigned char *memory)
{
    stepaf_tensor_t tensor = {.key = KEY, .data = memory, .bytes = BYTES};
    stepaf_plan_h plan = NULL;
    stepaf_status_t status = STEPAF_OK;

    if (!HS_OK(stepaf_register(job->ctx, memory, BYTES)) ||
        !HS_OK(stepaf_plan_create(job->ctx, &tensor, 1, NULL, 0, 0, &plan)) ||
        !HS_OK(stepaf_commit(job->ctx)) || !hs_pause(job))
        return;
    for (int i = 0; i < DEPTH && status == STEPAF_OK; i++) {
        stepaf_request_h request = NULL;
        status = stepaf_start(plan, &request);
    }
    if (status != STEPAF_OK)
        HS_STATUS(status, STEPAF_ERR_PEER_LOST);
}

static void body(struct hs_job *job)
{
    int rounds = (int)hs_option_int(job, "--rounds", 20);
    unsigned char *memory = NULL;

    for (int i = 0; i < rounds && i < MOST_ROUNDS && !hs_failed(); i++) {
        hs_step("a round");
        if (!open_round(job, i))
            break;
        size_t bytes =
            (size_t)BYTES * (job->role == STEPAF_FFN ? (size_t)DEPTH * (size_t)job->peers : 1);
        memory = malloc(bytes); /* no page of it is the library's */
        if (!HS_TRUE(memory != NULL))
            break;
        memset(memory, i, bytes);
        if (job->role == STEPAF_FFN)
            leave(job, memory, bytes, i);
        else
            push(job, memory);
        (void)hs_pause(job);
        stepaf_finalize(job->ctx);
        job->ctx = NULL;
        free(memory);
        memory = NULL;
    }
    free(memory);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "leaves",
                                        .options = "--rounds",
                                        .limit_s = 60,
                                        .n_boots = MOST_ROUNDS,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
