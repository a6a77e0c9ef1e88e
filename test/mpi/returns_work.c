/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of plans that the host starts. */
#include "returns.h"

enum { OPS = 8 };

void returns_begin(const struct rank *rank)
{
    (void)rank;
}

bool returns_prepare(struct rank *rank)
{
    return member_ops_prepare(&rank->exchange);
}

/* One operation, answered by all that are members. */
static bool ask(struct rank *rank, int n_answers)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = STEPAF_START_SKIP_LOST | STEPAF_START_WAIT};
    stepaf_request_h request = NULL;
    uint64_t op = member_ops_fill(&rank->exchange);

    hs_fill(rank->exchange.target, (size_t)RETURNS_BYTES * (size_t)rank->job->peers, 12345);
    if (!HS_OK(stepaf_start_with(rank->exchange.plan, &params, &request)))
        return false;
    stepaf_status_t status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    if (status != STEPAF_ERR_PEER_LOST && !HS_OK(status))
        return false;
    return HS_INT(member_ops_count(&rank->exchange, request, op), ==, n_answers);
}

/* Some operations of all attention ranks, answered by all FFN ranks; or of those that are left in
 * this round. */
bool returns_work(struct rank *rank, bool is_whole)
{
    int n_attn = is_whole ? rank->job->attn : returns_attn_left(rank, rank->round);
    int n_lost = is_whole ? 0 : returns_n_dead_peers(rank);
    int64_t until_ns = hs_now_ns() + RETURNS_LIMIT_S * 1000000000LL * hs_slow();

    hs_step("operations");
    rank->ops += n_attn;
    if (rank->job->role == STEPAF_ATTENTION) {
        for (int i = 0; i < OPS; i++) {
            if (!ask(rank, rank->job->peers - n_lost))
                return false;
            if (!i && rank->is_new)
                member_ops_note_most(rank->job, STAMP_FIRST_USE,
                                     hs_now_ns() -
                                         atomic_load(&rank->job->shared->stamp[STAMP_INIT]));
        }
        atomic_fetch_add(&rank->job->shared->stamp[STAMP_OPS], 1);
        return true;
    }
    bool is_first = rank->is_new;
    while (!hs_failed() && !hs_hopeless(rank->job) &&
           atomic_load(&rank->job->shared->stamp[STAMP_OPS]) < rank->ops) {
        if (member_ops_serve(&rank->exchange, 2000) && is_first) {
            member_ops_note_most(rank->job, STAMP_FIRST_USE,
                                 hs_now_ns() - atomic_load(&rank->job->shared->stamp[STAMP_INIT]));
            is_first = false;
        }
        if (hs_now_ns() > until_ns)
            return HS_FAILED("round %d: not all operations have come", rank->round);
    }
    return !hs_failed();
}

/* They are at rest when a rank is killed; test/mpi/survive is about others. */
bool returns_work_in_vain(struct rank *rank)
{
    (void)rank;
    return true;
}

void returns_end(struct rank *rank)
{
    hs_close(rank->job);
}
