/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks are lost, or leave, and what the others do until the next process asks. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "returns.h"

/* Whoever is to be lost has worked until here. */
void returns_be_lost(struct rank *rank)
{
    stepaf_commit_params_t leave = {.field_mask = STEPAF_COMMIT_LEAVING, .leaving = 1};

    while (!hs_option_int(rank->job, "--leave", 0))
        pause(); /* it is to be killed */
    hs_step("to leave");
    HS_OK(stepaf_commit_with(rank->job->ctx, &leave));
    HS_REFUSED(stepaf_commit(rank->job->ctx), STEPAF_ERR_STATE);
    HS_REFUSED(stepaf_barrier(rank->job->ctx, STEPAF_GROUP_WORLD, 0), STEPAF_ERR_STATE);
    stepaf_finalize(rank->job->ctx);
    fflush(NULL);
    _exit(hs_failed() ? 1 : RETURNS_HAS_LEFT);
}

bool returns_refuse_last(const struct rank *rank)
{
    stepaf_commit_params_t leave = {.field_mask = STEPAF_COMMIT_LEAVING,
                                    .leaving = rank->job->rank == 0};

    hs_step("the last of its role cannot leave");
    if (!HS_REFUSED(stepaf_commit_with(rank->job->ctx, &leave), STEPAF_ERR_STATE))
        return false;
    HS_TRUE(strstr(stepaf_last_error()->text, "cannot leave") != NULL);
    HS_INT(stepaf_last_error()->peer_world_rank, ==, 0);
    return rank->job->rank == 0 || returns_await_state(rank, 0, STEPAF_MEMBER_IN);
}

/* Until the victim has said that it leaves; then the others commit without a word of it. */
static bool let_one_leave(struct rank *rank, int victim, int left)
{
    if (returns_is_leader(rank) && !returns_tell_address(rank))
        return false;
    if (!returns_await_state(rank, victim, STEPAF_MEMBER_LEAVES) || !returns_meet(rank, left))
        return false;
    hs_step("a commit by which one leaves");
    if (!HS_OK(stepaf_commit(rank->job->ctx)))
        return false;
    rank->epoch++;
    stepaf_member_state_t state = returns_state_of(rank, victim); /* or the next asks already */
    HS_TRUE(state == STEPAF_MEMBER_LEFT || state == STEPAF_MEMBER_ASKS);
    return returns_work(rank, false) && returns_look_at_map(rank, "has left") &&
           returns_meet_by_barrier(rank, left);
}

/* Until the victim is dead, and its place free. */
bool returns_lose_one(struct rank *rank, int victim)
{
    struct hs_job *job = rank->job;
    int left = job->size - returns_n_dead(rank);

    if (hs_option_int(job, "--leave", 0))
        return let_one_leave(rank, victim, left);
    if (returns_is_leader(rank)) {
        if (!returns_tell_address(rank))
            return false;
        for (int i = 0; i < returns_n_dead(rank); i++)
            hs_signal(job, returns_dead_of(rank, rank->round, i), SIGKILL);
    }
    if (!returns_meet(rank, left) || !returns_work_in_vain(rank))
        return false;
    if (hs_option_int(job, "--once", 0))
        return returns_await_state(rank, victim, STEPAF_MEMBER_ASKS) && returns_meet(rank, left);
    if ((rank->round && !returns_barrier_names_lost(rank)) || /* at first by the bootstrap */
        !returns_commit(rank, STEPAF_COMMIT_KEEP_OUT) || !returns_work(rank, false) ||
        !returns_look_at_map(rank, "is out"))
        return false;
    /* One asks that does not fit, and one that is not let in. */
    if (hs_option_int(job, "--wrong", 0))
        if (!returns_await_state(rank, victim, STEPAF_MEMBER_ASKS) ||
            !returns_commit_more(rank, 1000, STEPAF_COMMIT_ADMIT) ||
            !member_ops_await(rank->job, STAMP_VAIN, 2 * rank->round + 1) ||
            !returns_await_state(rank, victim, STEPAF_MEMBER_ASKS) ||
            !returns_commit_more(rank, 2000, STEPAF_COMMIT_KEEP_OUT) ||
            !member_ops_await(rank->job, STAMP_VAIN, 2 * rank->round + 2))
            return false;
    return returns_meet_by_barrier(rank, left);
}

bool returns_do_without(struct rank *rank, int victim)
{
    bool stops = hs_option_int(rank->job, "--stop", 0);

    if (!returns_meet(rank, rank->job->size - returns_n_dead(rank)))
        return false;
    if (stops && returns_is_leader(rank)) /* it has asked all, and the leader has yet to commit */
        hs_signal(rank->job, victim, SIGSTOP);
    if (!returns_commit(rank, STEPAF_COMMIT_ADMIT))
        return false;
    stepaf_member_state_t state = returns_state_of(rank, victim);
    HS_TRUE(state == STEPAF_MEMBER_LOST || state == STEPAF_MEMBER_OUT ||
            (!stops && state == STEPAF_MEMBER_ASKS));
    for (int r = 0; r < rank->job->size && !stops; r++)
        if (r != victim && returns_state_of(rank, r) != STEPAF_MEMBER_IN)
            HS_FAILED("world rank %d is lost, and not who could not reach it: %s", r,
                      stepaf_members_reason(rank->job->ctx, r));
    if (!returns_meet(rank, rank->job->size - returns_n_dead(rank)))
        return false;
    if (returns_is_leader(rank)) {
        if (!returns_tell_address(rank))
            return false;
        if (stops)
            hs_signal(rank->job, victim, SIGKILL);
    }
    return returns_await_state(rank, victim, STEPAF_MEMBER_ASKS);
}
