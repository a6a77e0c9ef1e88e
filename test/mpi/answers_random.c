/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are complete with some of their answers: a random schedule, every byte
 * compared. */
#include "answers.h"

/* What is in flight, by slot. */
struct flight {
    stepaf_request_h request;
    uint32_t sequence;
    int needed;
    bool is_open;
};

static void finish(struct fx_plan *plan, struct flight *flight)
{
    int n = 0;

    flight->is_open = false;
    if (!HS_OK(stepaf_wait(flight->request, STEPAF_TIMEOUT_DEFAULT)))
        return;
    unsigned mask = ans_mask(plan, flight->request, flight->sequence);
    for (int f = 0; f < A_FFN; f++)
        n += mask >> f & 1;
    HS_INT(n, >=, flight->needed);
}

/* FFN rank f keeps more batches the larger f is, and releases some apart from their answers. */
void ans_random(struct fx_plan *plan, uint64_t seed, long ops)
{
    struct flight flights[FX_DEPTH] = {{.is_open = false}};
    struct hs_job *job = plan->job;
    stepaf_counters_t counters;

    for (long i = 0; i < ops && !hs_failed(); i++) {
        struct flight *flight = &flights[plan->next % FX_DEPTH];
        seed = hs_mix(seed);
        if (flight->is_open)
            finish(plan, flight);
        /* For every other hundred operations the last rank answers nothing. It is asked first
         * together with all others, so that nothing needs its answer; then it is left out. */
        bool is_blocked = i / 100 % 2 == 1;
        if (!is_blocked)
            ans_hold(job, A_FFN - 1, 0);
        for (int s = 0; s < FX_DEPTH && i % 100 == 0 && i > 0; s++) {
            if (flights[s].is_open)
                finish(plan, &flights[s]);
            HS_OK(stepaf_wait_rest(plan->last[s], STEPAF_TIMEOUT_DEFAULT));
        }
        if (is_blocked)
            ans_hold(job, A_FFN - 1, INT64_MAX);
        plan->n_answers = 1 + (int)(seed % (is_blocked ? A_FFN - 1 : A_FFN));
        plan->patience_us = seed >> 8 & 1 ? 0 : (int64_t)(seed >> 9 & 63);
        flight->sequence = plan->next;
        flight->needed = plan->n_answers;
        flight->is_open = HS_OK(fx_start(plan, STEPAF_START_WAIT, &flight->request));
        if (seed >> 16 & 1 && flight->is_open)
            finish(plan, flight);
    }
    for (int s = 0; s < FX_DEPTH; s++)
        if (flights[s].is_open)
            finish(plan, &flights[s]);
    ans_end(job, A_CALM);
    for (int s = 0; s < FX_DEPTH && !hs_failed(); s++)
        HS_OK(stepaf_wait_rest(plan->last[s], STEPAF_TIMEOUT_DEFAULT));
    counters = ans_counters(job);
    HS_INT(counters.operations_completed, ==, ops);
    HS_INT(counters.dropped_stale + counters.dropped_malformed + counters.operations_failed, ==, 0);
    /* Each answer that was asked for has come once: in time or late. */
    HS_INT(counters.bytes_received, ==, (A_FFN * (uint64_t)ops - counters.left_out) * plan->bytes);
    HS_INT(counters.incomplete, >, 0);
    HS_INT(counters.left_out, >, 0);
    HS_INT(counters.late, >, 0);
    plan->n_answers = A_FFN;
    for (int i = 0; i < 2 * FX_DEPTH && !hs_failed(); i++)
        fx_exchange(plan);
}
