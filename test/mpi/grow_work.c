/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of plans that the host starts. */
#include "grow.h"

enum { OPS = 8, BYTES = 3000 };

static struct member_ops exchange; /* a process is one rank */

void grow_begin(const struct rank *rank)
{
    exchange = (struct member_ops){.job = rank->job, .bytes = BYTES};
    if (rank->life > 0) /* other bytes than in the life before */
        exchange.n_ops = (uint64_t)rank->life * 1000000;
}

void grow_end(const struct rank *rank)
{
    hs_close(rank->job);
}

bool grow_prepare(const struct rank *rank)
{
    (void)rank;
    return member_ops_prepare(&exchange);
}

/* One operation, to which each FFN rank that is there has to answer, and nobody else. */
static bool ask(const struct rank *rank, int n_answers)
{
    stepaf_request_h request = NULL;
    uint64_t op = member_ops_fill(&exchange);

    hs_fill(exchange.target, (size_t)BYTES * (size_t)rank->job->peers, 12345);
    if (!HS_OK(stepaf_start(exchange.plan, &request)) ||
        !HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)))
        return false;
    return HS_INT(member_ops_count(&exchange, request, op), ==, n_answers);
}

bool grow_work(struct rank *rank, int n)
{
    int64_t until_ns = hs_now_ns() + GROW_LIMIT_S * 1000000000LL * hs_slow();

    rank->ops += n;
    if (rank->job->role == STEPAF_ATTENTION) {
        for (int i = 0; i < OPS; i++) {
            if (!ask(rank, n))
                return false;
            grow_note_first_use(rank);
        }
        atomic_fetch_add(&rank->job->shared->stamp[STAMP_OPS], 1);
        return true;
    }
    while (!hs_failed() && !hs_hopeless(rank->job) &&
           atomic_load(&rank->job->shared->stamp[STAMP_OPS]) < rank->ops) {
        if (member_ops_serve(&exchange, 2000))
            grow_note_first_use(rank);
        if (hs_now_ns() > until_ns)
            return HS_FAILED("not all operations have come");
    }
    return !hs_failed();
}

/* They go by links, which nobody expects to be of any kind. */
void grow_go_wrong(bool is_wrong)
{
    (void)is_wrong;
}
