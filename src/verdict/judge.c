/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on one operation, from what was seen and what is usual. */
#include "verdict/judge.h"

enum { LATE_LEAST_NS = 20000 /* smaller excesses over the usual are ignored */ };

static int64_t least(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

static int64_t no_less(int64_t value, int64_t floor)
{
    return value > floor ? value : floor;
}

struct stepaf_verdict_spent stepaf_verdict_split(const struct stepaf_verdict_seen *seen)
{
    struct stepaf_verdict_spent spent = {.post = seen->post,
                                         .there = -1,
                                         .queue = seen->queue,
                                         .work = seen->work,
                                         .back = -1,
                                         .wait = -1,
                                         .net = -1};
    int64_t ways, gap, own;

    if (seen->queue < 0 || seen->work < 0)
        return spent;
    ways = no_less(seen->way - seen->queue - seen->work, 0);
    if (seen->ffn_gap < 0) {
        spent.wait = least(seen->own_gap, ways);
        return spent;
    }
    gap = least(seen->ffn_gap, ways);
    own = least(seen->own_gap, ways - gap);
    if (seen->bound >= 0) {
        gap = least(gap, no_less(seen->there + seen->bound, 0));
        own = least(no_less(seen->own_gap, 0), ways - gap);
        own = least(own, no_less(ways - seen->there + seen->bound, 0));
        spent.there = least(no_less(seen->there - gap, 0), ways - gap - own);
        spent.back = ways - gap - own - spent.there;
    }
    spent.queue += gap;
    spent.wait = own;
    spent.net = ways - gap - own;
    return spent;
}

static void learn(struct stepaf_median *median, int64_t ns)
{
    if (ns >= 0)
        stepaf_median_add(median, ns);
}

void stepaf_verdict_learn(struct stepaf_verdict_usual_peer *usual,
                          const struct stepaf_verdict_spent *spent)
{
    learn(&usual->there, spent->there);
    learn(&usual->queue, spent->queue);
    learn(&usual->work, spent->work);
    learn(&usual->back, spent->back);
    learn(&usual->wait, spent->wait);
    learn(&usual->net, spent->net);
}

int64_t stepaf_verdict_usual_took(const struct stepaf_verdict_usual *usual)
{
    if (usual->lately.n < STEPAF_MEDIAN_SAMPLES) /* a few may be short by chance */
        return usual->took.median;
    return least(usual->took.median, usual->lately.median);
}

int64_t stepaf_verdict_late_took(const struct stepaf_verdict_usual *usual)
{
    int64_t took = stepaf_verdict_usual_took(usual);

    return usual->took.n < STEPAF_VERDICT_SURE ? INT64_MAX : took + no_less(took, LATE_LEAST_NS);
}

int64_t stepaf_verdict_least_took(const struct stepaf_verdict_usual *usual)
{
    return usual->lately.n < STEPAF_MEDIAN_SAMPLES ? 0 : usual->lately.least;
}

/* Compare a late start with the operation's length: a small delay matters little beside a long
 * operation. */
int64_t stepaf_verdict_late_idle(const struct stepaf_verdict_usual *usual)
{
    int64_t beyond;

    if (usual->idle.n < STEPAF_VERDICT_SURE || usual->took.n < STEPAF_VERDICT_SURE)
        return INT64_MAX;
    beyond = no_less(usual->idle.median, stepaf_verdict_usual_took(usual));
    return usual->idle.median + no_less(beyond, LATE_LEAST_NS);
}

/* Return by how much @a ns exceeds the usual; 0 if one of them is unknown. @a part: fraction of the
 * usual, see part_of_usual. */
static int64_t beyond(int64_t ns, const struct stepaf_median *usual, double part)
{
    return ns < 0 || usual->n < STEPAF_VERDICT_SURE
               ? 0
               : no_less(ns - (int64_t)(usual->median * part), 0);
}

/* Return the fraction by which the usual times of phases must be scaled. Phases are known only over
 * half a minute, since learning them takes messages. If operations have become shorter lately, each
 * phase is assumed to be shorter in proportion: phases that are not are taken for a little longer
 * than they were. */
static double part_of_usual(const struct stepaf_verdict_usual *usual)
{
    int64_t took = stepaf_verdict_usual_took(usual);

    return took < usual->took.median ? (double)took / usual->took.median : 1;
}

/* Judge the ways: each separately, if both clocks are certain about it. The bound counts twice,
 * because the usual times were measured between these clocks as well. */
static void judge_ways(const struct stepaf_verdict_seen *seen,
                       const struct stepaf_verdict_spent *spent,
                       const struct stepaf_verdict_usual_peer *usual, double part, int64_t *over)
{
    int64_t there = beyond(spent->there, &usual->there, part);
    int64_t back = beyond(spent->back, &usual->back, part);
    int64_t apart = there > back ? there - back : back - there;

    if (seen->bound >= 0 && spent->there >= 0 && no_less(there, back) > 0 &&
        apart > 2 * seen->bound) {
        over[STEPAF_VERDICT_THERE] = there;
        over[STEPAF_VERDICT_BACK] = back;
    } else {
        over[STEPAF_VERDICT_NETWORK] = beyond(spent->net, &usual->net, part);
    }
}

/* Move time of this rank's own to STARVED if the thread had no core for most of it. */
static void judge_starved(int64_t starved, int64_t *over, int phase)
{
    if (over[phase] <= 0 || starved - over[STEPAF_VERDICT_STARVED] < over[phase] / 4 * 3)
        return;
    over[STEPAF_VERDICT_STARVED] += over[phase];
    over[phase] = 0;
}

/* Return the rail that had at least half of the time that the verdict is about. */
static int32_t find_rail(const struct stepaf_verdict_seen *seen, const stepaf_verdict_t *verdict)
{
    const struct stepaf_verdict_late_rail *late = NULL;

    if (verdict->phase == STEPAF_VERDICT_THERE)
        late = &seen->rail_there;
    else if (verdict->phase == STEPAF_VERDICT_BACK)
        late = &seen->rail_back;
    else if (verdict->phase == STEPAF_VERDICT_NETWORK)
        late = seen->rail_there.ns > seen->rail_back.ns ? &seen->rail_there : &seen->rail_back;
    return late && late->ns > 0 && late->ns >= verdict->over_ns[verdict->phase] / 2 ? late->rail
                                                                                    : -1;
}

void stepaf_verdict_judge(const struct stepaf_verdict_seen *seen,
                          const struct stepaf_verdict_usual *usual,
                          const struct stepaf_verdict_usual_peer *usual_peer,
                          stepaf_verdict_t *verdict_p)
{
    struct stepaf_verdict_spent spent = stepaf_verdict_split(seen);
    int64_t *over = verdict_p->over_ns, left;
    bool is_late = seen->took >= stepaf_verdict_late_took(usual);
    double part = part_of_usual(usual);

    for (int i = 0; i < STEPAF_VERDICT_PHASES; i++)
        over[i] = 0;
    verdict_p->took_ns = seen->took;
    verdict_p->usual_ns = stepaf_verdict_usual_took(usual);
    if (seen->idle >= stepaf_verdict_late_idle(usual)) {
        verdict_p->took_ns += seen->idle;
        verdict_p->usual_ns += usual->idle.median;
        over[STEPAF_VERDICT_START] = seen->idle - usual->idle.median;
    }
    if (is_late) {
        over[STEPAF_VERDICT_START] += beyond(spent.post, &usual->post, part);
        over[STEPAF_VERDICT_FFN_QUEUE] = beyond(spent.queue, &usual_peer->queue, part);
        over[STEPAF_VERDICT_FFN_WORK] = beyond(spent.work, &usual_peer->work, part);
        over[STEPAF_VERDICT_WAIT] = beyond(spent.wait, &usual_peer->wait, part);
        /* A thread that waits without polling has no core. */
        over[STEPAF_VERDICT_STARVED] = least(over[STEPAF_VERDICT_WAIT], seen->in_wait);
        over[STEPAF_VERDICT_WAIT] -= over[STEPAF_VERDICT_STARVED];
        judge_ways(seen, &spent, usual_peer, part, over);
    }
    judge_starved(seen->starved, over, STEPAF_VERDICT_START);
    judge_starved(seen->starved, over, STEPAF_VERDICT_WAIT);
    left = verdict_p->took_ns - verdict_p->usual_ns;
    verdict_p->phase = STEPAF_VERDICT_UNKNOWN;
    for (int i = STEPAF_VERDICT_UNKNOWN + 1; i < STEPAF_VERDICT_LAST; i++)
        left -= over[i];
    over[STEPAF_VERDICT_UNKNOWN] = no_less(left, 0);
    for (int i = STEPAF_VERDICT_UNKNOWN + 1; i < STEPAF_VERDICT_LAST; i++)
        if (over[i] > over[verdict_p->phase])
            verdict_p->phase = (uint16_t)i;
    verdict_p->rail = find_rail(seen, verdict_p);
}
