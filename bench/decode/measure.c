/* SPDX-License-Identifier: Apache-2.0 */
#include "measure.h"

static int64_t at_least_0(int64_t value)
{
    return value > 0 ? value : 0;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* An FFN rank works on one batch after the other, and one with inline progress notices a batch
 * only when it has finished the previous ones. Until the answer to the last of these arrived
 * here, an arrived batch was in the queue, whatever the FFN rank reports. */
static void mend_queue(stepaf_timeline_t *timeline, int64_t *busy_until_ns)
{
    int64_t told = at_least_0(timeline->notified_ns);
    int64_t longest = at_least_0(timeline->answered_ns - told - at_least_0(timeline->ffn_work_ns));
    int64_t behind = *busy_until_ns - timeline->start_ns - told;
    timeline->ffn_queue_ns = max64(timeline->ffn_queue_ns, min64(behind, longest));
    *busy_until_ns = max64(*busy_until_ns, timeline->start_ns + timeline->answered_ns);
}

int measure_slowest(stepaf_request_h request, int ffn_ranks, int64_t *busy_until_ns,
                    stepaf_timeline_t *slowest_p)
{
    int found = -1;
    for (int f = 0; f < ffn_ranks; f++) {
        stepaf_timeline_t timeline = {.size = sizeof(timeline)};
        if (stepaf_timeline_query(request, f, &timeline) != STEPAF_OK || timeline.answered_ns < 0)
            continue;
        mend_queue(&timeline, &busy_until_ns[f]);
        if (found < 0 || timeline.answered_ns > slowest_p->answered_ns)
            *slowest_p = timeline;
        found = 0;
    }
    return found;
}

/* An operation is pushed, queued and processed at the FFN rank, and returns. The FFN rank's
 * durations are known, but not when they began; they are assumed to begin when the FFN rank was
 * notified, so that the whole flight counts as the way back. */
void measure_add(const struct exchange_times *times, const stepaf_timeline_t *slowest,
                 struct layer_stats *stats)
{
    int64_t told = at_least_0(slowest->notified_ns);
    int64_t queue = at_least_0(slowest->ffn_queue_ns);
    int64_t work = at_least_0(slowest->ffn_work_ns);
    int64_t back = at_least_0(slowest->answered_ns - told - queue - work);
    int64_t busy_begin = slowest->start_ns + told;
    int64_t busy_end = busy_begin + queue + work;
    int64_t wait = times->wait_end_ns - times->wait_begin_ns;
    int64_t for_ffn =
        at_least_0(min64(times->wait_end_ns, busy_end) - max64(times->wait_begin_ns, busy_begin));
    int64_t library = times->start_end_ns - times->start_begin_ns + wait - for_ffn;
    stats->exchanges++;
    stats->attention_ns += times->start_begin_ns - times->attend_begin_ns;
    stats->a2f_ns += told;
    stats->queue_ns += queue;
    stats->ffn_ns += work;
    stats->f2a_ns += back;
    stats->wait_ns += wait;
    stats->round_trip_ns += max64(slowest->answered_ns, times->wait_end_ns - slowest->start_ns);
    stats->library_ns += library;
    stats->exposed_ns += min64(library, told + back);
}
