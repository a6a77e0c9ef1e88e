/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of a proxied job do commit after commit. */
#include "proxy_again.h"
#include "proxy_rank.h"
#include "ranks.h"
#include "unit.h"

int proxy_commit_again(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    for (uint64_t round = 0; round < 3; round++) {
        RANK_CHECK(boot,
                   stepaf_key_declare(rank.ctx, 1000 + round, STEPAF_PULL, 8, NULL) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
        RANK_CHECK(boot, proxy_rank_run(&rank, 0, 7) == 0);
        RANK_CHECK(boot, rank.n_wrong == 0);
        RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    }
    proxy_rank_close(&rank);
    return 0;
}

int proxy_withdraw_keys(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_job job = *(const struct proxy_job *)arg;
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, &job, boot))
        return 1;
    for (unsigned round = 0; round < 4; round++) {
        RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
        RANK_CHECK(boot, proxy_rank_run(&rank, 0, 7) == 0);
        RANK_CHECK(boot, rank.n_wrong == 0);
        RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
        if (proxy_rank_withdraw(&rank))
            return 1;
        job.push[1] = 4096 >> round;
        job.pull[0] = 100 + 3000 * round;
        job.depth = 1 + round;
        if (round < 3 && proxy_rank_declare(&rank))
            return 1;
    }
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}
