/* SPDX-License-Identifier: Apache-2.0 */
/* What is no death: a rank that is slow, and a network that is cut in two. */
#include <stdlib.h>

#include "survive.h"

/* ---- a rank that is merely slow ---- */

static void count_slow(const struct rank *rank, stepaf_members_t *members)
{
    *members = (stepaf_members_t){.size = sizeof(*members)};
    HS_OK(stepaf_members_query(rank->job->ctx, members, NULL, 0));
}

void survive_be_slow(struct rank *rank)
{
    int64_t give_up_ns = hs_now_ns() + 20000000000LL * hs_slow();
    _Atomic int64_t *seen = &rank->job->shared->stamp[STAMP_OPS];
    stepaf_request_h request = NULL;
    stepaf_members_t members;

    if (rank->job->role == STEPAF_FFN) {
        while (rank->job->index == rank->job->ffn - 1 && !atomic_load(seen) &&
               hs_now_ns() < give_up_ns)
            hs_sleep_us(1000);
        survive_serve(rank, STAMP_QUIET, 1);
        return;
    }
    count_slow(rank, &members);
    HS_INT(members.n_slow, ==, 0);
    (void)member_ops_fill(&rank->exchange);
    if (!HS_OK(stepaf_start(rank->exchange.plan, &request)))
        return;
    do {
        (void)stepaf_progress(rank->job->ctx);
        count_slow(rank, &members);
    } while (!(members.n_slow == 1 && stepaf_request_peer(request, 0) == STEPAF_OK) &&
             hs_now_ns() < give_up_ns && !hs_failed());
    HS_INT(members.n_slow, ==, 1);
    HS_INT(members.n_in, ==, rank->job->size);
    HS_INT(members.n_lost + members.n_out, ==, 0);
    HS_INT(members.changes, ==, 0);
    atomic_store(seen, 1);
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    count_slow(rank, &members);
    HS_INT(members.n_slow, ==, 0);
    atomic_store(&rank->job->shared->stamp[STAMP_QUIET], 1);
}

/* ---- a network that is cut in two ---- */

static void run_command(const struct rank *rank, const char *name)
{
    const char *command = hs_option_text(rank->job, name, NULL);

    if (rank->job->rank == 0 && command && system(command) != 0)
        HS_FAILED("this has failed: %s", command);
}

/* The part that does not go on: it says so, and never does again. */
static void stay_behind(struct rank *rank)
{
    HS_REFUSED(stepaf_commit_with(rank->job->ctx, &survive_go_on), STEPAF_ERR_PEER_LOST);
    HS_REFUSED(stepaf_commit_with(rank->job->ctx, &survive_go_on), STEPAF_ERR_STATE);
    HS_INT(stepaf_epoch(rank->job->ctx), ==, rank->epoch);
}

void survive_cut_in_two(struct rank *rank)
{
    int apart = (int)hs_option_int(rank->job, "--apart", 1), n = rank->job->size;
    bool is_lost = false;

    rank->in_commit = false;
    if (rank->job->role == STEPAF_FFN)
        survive_serve(rank, STAMP_OPS, rank->job->attn);
    else if (survive_ask(rank, 0, &is_lost))
        atomic_fetch_add(&rank->job->shared->stamp[STAMP_OPS], 1);
    if (!survive_declare_more(rank, 0) || !survive_reset_stamps(rank))
        return;
    run_command(rank, "--cut");
    if (!hs_pause(rank->job))
        return;
    hs_step("a commit of two halves");
    if (rank->job->rank >= n - apart) {
        stay_behind(rank);
        (void)hs_pause(rank->job);
    } else if (survive_commit_on(rank)) {
        for (int r = n - apart; r < n; r++)
            rank->is_dead[r] = true;
        survive_compare_lists(rank);
        (void)survive_work(rank);
        (void)hs_pause(rank->job);
    }
    run_command(rank, "--mend");
    (void)hs_pause(rank->job);
    stepaf_finalize(rank->job->ctx);
    rank->job->ctx = NULL;
}
