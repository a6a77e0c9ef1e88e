/* SPDX-License-Identifier: Apache-2.0 */
/* Commits, and what ranks see of each other. */
#include "returns.h"

bool returns_commit(struct rank *rank, stepaf_commit_return_t returning)
{
    stepaf_commit_params_t params = {.field_mask = STEPAF_COMMIT_LOST | STEPAF_COMMIT_RETURN,
                                     .lost = STEPAF_COMMIT_LEAVE_LOST,
                                     .returning = returning};
    int64_t began_ns = hs_now_ns();

    hs_step(returning == STEPAF_COMMIT_ADMIT ? "a commit that admits" : "a commit without it");
    if (!HS_OK(stepaf_commit_with(rank->job->ctx, &params)))
        return false;
    if (returning == STEPAF_COMMIT_ADMIT && !rank->is_new)
        member_ops_note_most(rank->job, STAMP_COMMIT, hs_now_ns() - began_ns);
    return HS_INT(stepaf_epoch(rank->job->ctx), ==, rank->is_new ? 1 : ++rank->epoch);
}

stepaf_member_state_t returns_state_of(const struct rank *rank, int world)
{
    stepaf_member_state_t states[HS_MAX_RANKS] = {0};
    stepaf_members_t members = {.size = sizeof(members)};

    if (!HS_OK(stepaf_members_query(rank->job->ctx, &members, states, HS_MAX_RANKS)))
        return STEPAF_MEMBER_OUT;
    HS_INT(members.n_in + members.n_lost + members.n_out + members.n_asking, ==, rank->job->size);
    return states[world];
}

bool returns_await_state(const struct rank *rank, int world, stepaf_member_state_t state)
{
    int64_t until_ns = hs_now_ns() + RETURNS_LIMIT_S * 1000000000LL * hs_slow();

    hs_step("until it asks");
    while (returns_state_of(rank, world) != state) {
        (void)stepaf_progress(rank->job->ctx);
        if (hs_failed() || hs_hopeless(rank->job))
            return false;
        if (hs_now_ns() > until_ns)
            return HS_FAILED("world rank %d is %d, should be %d: %s", world,
                             (int)returns_state_of(rank, world), (int)state,
                             stepaf_members_reason(rank->job->ctx, world));
        hs_sleep_us(500);
    }
    return true;
}

/* There is something new to commit. */
bool returns_commit_more(struct rank *rank, uint64_t key, stepaf_commit_return_t returning)
{
    return HS_OK(stepaf_key_declare(rank->job->ctx, key + (uint64_t)rank->round, STEPAF_PULL, 64,
                                    NULL)) &&
           returns_commit(rank, returning);
}
