/* SPDX-License-Identifier: Apache-2.0 */
#include "pair_rank.h"

#include <stdlib.h>

int pair_open(struct pair_rank *rank, const stepaf_boot_t *boot, const char *progress)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = boot->rank ? STEPAF_FFN : STEPAF_ATTENTION};
    stepaf_boot_t own = *boot;

    own.close = NULL; /* whoever has attached it ends it */
    *rank = (struct pair_rank){.boot = boot, .ffn = boot->rank == 1};
    setenv("STEPAF_PROGRESS", progress, 1);
    RANK_CHECK(boot, stepaf_init(&own, &params, &rank->ctx) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_key_declare(rank->ctx, PAIR_PUSHED, STEPAF_PUSH, PAIR_BYTES, NULL) ==
                         STEPAF_OK);
    RANK_CHECK(boot, stepaf_key_declare(rank->ctx, PAIR_PULLED, STEPAF_PULL, PAIR_BYTES, NULL) ==
                         STEPAF_OK);
    RANK_CHECK(boot, stepaf_alloc(rank->ctx, (size_t)2 * PAIR_BYTES, STEPAF_MEM_HOST,
                                  (void **)&rank->memory) == STEPAF_OK);
    stepaf_tensor_t push = {PAIR_PUSHED, rank->memory, PAIR_BYTES},
                    pull = {PAIR_PULLED, rank->memory + PAIR_BYTES, PAIR_BYTES};
    if (!rank->ffn)
        RANK_CHECK(boot,
                   stepaf_plan_create(rank->ctx, &push, 1, &pull, 1, 0, &rank->plan) == STEPAF_OK);
    return 0;
}

int pair_receive(struct pair_rank *rank, stepaf_batch_h *batch_p)
{
    int n;

    RANK_CHECK(rank->boot, stepaf_recv(rank->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT,
                                       batch_p, 1, &n) == STEPAF_OK);
    return 0;
}

int pair_answer(struct pair_rank *rank, stepaf_batch_h batch)
{
    stepaf_tensor_t tensor = {PAIR_PULLED, rank->memory, PAIR_BYTES};

    RANK_CHECK(rank->boot, stepaf_respond(batch, &tensor, 1, 0, NULL) == STEPAF_OK);
    return 0;
}
