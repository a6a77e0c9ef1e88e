/* SPDX-License-Identifier: Apache-2.0 */
#include "row.h"

enum { LEAD_SHARE = 10, LEAD_MAX = 100, WARMUP_SHARE = 5 };

uint64_t perf_schedule_whole(uint64_t ops, unsigned window)
{
    uint64_t turns = (ops + window - 1) / window;

    return (turns > 0 ? turns : 1) * window;
}

uint64_t perf_schedule_warmup(const struct perf_options *options, double op_us)
{
    double budget_us = (double)options->run.max_time_s * 1e6 / WARMUP_SHARE;

    if (options->run.max_time_s > 0 && (double)options->run.warmup * op_us > budget_us)
        return (uint64_t)(budget_us / op_us);
    return options->run.warmup;
}

void perf_schedule_make(const struct perf_options *options, unsigned window, double op_us,
                        struct perf_schedule *schedule_p)
{
    uint64_t ops = options->run.iters;
    uint64_t rounds = options->run.rounds;
    uint64_t turns, lead; /* turns: of the whole window */

    if (options->run.max_time_s > 0 && op_us > 0.0) {
        double affordable = (double)options->run.max_time_s * 1e6 / op_us;

        if (affordable < (double)ops)
            ops = (uint64_t)affordable;
    }
    /* The requested number is the maximum. Blocks are of equal size, so that a remainder may be
     * left over. */
    turns = ops > window ? ops / window : 1;
    if (rounds > turns)
        rounds = turns;
    schedule_p->timed_ops = (turns + rounds - 1) / rounds * window;
    schedule_p->rounds = turns * window / schedule_p->timed_ops;
    lead = schedule_p->timed_ops / LEAD_SHARE;
    schedule_p->lead_ops = perf_schedule_whole(lead < LEAD_MAX ? lead : LEAD_MAX, window);
}
