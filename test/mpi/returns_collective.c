/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers and the map of ranks that the bootstrap does not all know any more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "returns.h"

enum { SHORT_US = 1000, LATE_US = 4000 };

/* Every other round one rank comes late, and the others wait in vain for some time. */
static stepaf_status_t barrier_in_parts(const struct rank *rank)
{
    bool is_late = rank->round % 2 && rank->job->rank == rank->job->size - 1;
    stepaf_status_t status = STEPAF_ERR_TIMEOUT;

    if (is_late)
        hs_sleep_us(LATE_US);
    if (rank->round % 2 == 0)
        return stepaf_barrier(rank->job->ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT);
    int64_t until_ns = hs_now_ns() + RETURNS_LIMIT_S * 1000000000LL * hs_slow();
    while (status == STEPAF_ERR_TIMEOUT && hs_now_ns() < until_ns && !hs_hopeless(rank->job)) {
        status = stepaf_barrier(rank->job->ctx, STEPAF_GROUP_WORLD, SHORT_US);
        if (status == STEPAF_ERR_TIMEOUT) {
            HS_INT(stepaf_last_error()->phase, ==, STEPAF_PHASE_BARRIER);
            HS_INT(stepaf_last_error()->peer_world_rank, >=, 0);
        }
    }
    return status;
}

bool returns_meet_by_barrier(struct rank *rank, int n)
{
    stepaf_group_t own = rank->job->role == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;

    hs_step("a barrier");
    rank->met += n;
    atomic_fetch_add(&rank->job->shared->stamp[STAMP_MET], 1);
    return HS_OK(barrier_in_parts(rank)) &&
           HS_INT(atomic_load(&rank->job->shared->stamp[STAMP_MET]), >=, rank->met) &&
           HS_OK(stepaf_barrier(rank->job->ctx, own, STEPAF_TIMEOUT_DEFAULT));
}

bool returns_barrier_names_lost(const struct rank *rank)
{
    hs_step("a barrier in vain");
    if (!HS_REFUSED(stepaf_barrier(rank->job->ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT),
                    STEPAF_ERR_PEER_LOST))
        return false;
    return HS_TRUE(returns_dies_in(rank, rank->round, stepaf_last_error()->peer_world_rank));
}

bool returns_look_at_map(const struct rank *rank, const char *what)
{
    int first = 0;
    char *text = NULL;

    hs_step("the map");
    while (strcmp(what, "has returned") && returns_dies_in(rank, rank->round, first))
        first++;
    if (!HS_OK(stepaf_map_check(rank->job->ctx, STEPAF_TIMEOUT_DEFAULT, &text)))
        return false;
    HS_INT(text != NULL, ==, rank->job->rank == first);
    char name[48];
    int victim = returns_victim_of(rank, rank->round);
    snprintf(name, sizeof(name), "(world rank %d) %s", victim, what);
    if (text && !strstr(text, name))
        HS_FAILED("the map does not say \"%s\":\n%s", name, text);
    if (text && !rank->round && hs_option_int(rank->job, "--figures", 0))
        printf("%s\n", text);
    free(text);
    return !hs_failed();
}
