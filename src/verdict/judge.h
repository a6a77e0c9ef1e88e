/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on one operation: where its time went, from what both ranks have seen of it and
 * what is usual. Pure arithmetic.
 *
 * A stamp says when a rank noticed something, not when it arrived: an answer that arrives while
 * the caller computes is noticed at the next poll. So each rank also records since when it had
 * not polled (its gap). The part of a way that may have been such a gap is counted as FFN queue,
 * or as this rank's wait. Only time during which the waiting rank was polling is charged to the
 * network. */
#ifndef STEPAF_VERDICT_JUDGE_H
#define STEPAF_VERDICT_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#include <stepaf/verdict.h>

#include "verdict/median.h"

/* The rail that was later than all others with its share of a message. */
struct stepaf_verdict_late_rail {
    int32_t rail; /* -1: there was none */
    int64_t ns;   /* time that the others waited for it */
};

/* What was seen of an operation at one peer; all in ns. */
struct stepaf_verdict_seen {
    int64_t idle;  /* from the preceding event to the start */
    int64_t took;  /* from the start to the end */
    int64_t post;  /* from the start until all parts were with the transports */
    int64_t way;   /* from then to the peer's answer */
    int64_t there; /* from then to the arrival at the peer: between two clocks */
    int64_t bound; /* maximum difference of these clocks; -1: unknown */
    int64_t queue; /* reported by the peer; -1: not reported */
    int64_t work;  /* reported by the peer; -1: not reported */
    int64_t
        ffn_gap; /* how long the peer had not polled before the arrival; -1: it did not report */
    int64_t own_gap; /* how long this rank had not polled before the answer */
    int64_t in_wait; /* part of own_gap in which the caller waited */
    int64_t starved; /* time that the thread waited for a core around the operation */
    struct stepaf_verdict_late_rail rail_there, rail_back;
};

/* Where the time went; -1: unknown. */
struct stepaf_verdict_spent {
    int64_t post, there, queue, work, back, wait;
    int64_t net; /* there and back together: needs one clock only */
};

/* The usual times of a plan, and of a plan at one peer: over about half a minute. lately: how long
 * the last operations took. */
struct stepaf_verdict_usual {
    struct stepaf_median took, idle, post, lately;
};

struct stepaf_verdict_usual_peer {
    struct stepaf_median there, queue, work, back, wait, net;
};

enum { STEPAF_VERDICT_SURE = 9 /* samples that make a median reliable */ };

struct stepaf_verdict_spent stepaf_verdict_split(const struct stepaf_verdict_seen *seen);
void stepaf_verdict_learn(struct stepaf_verdict_usual_peer *usual,
                          const struct stepaf_verdict_spent *spent);
/* Return how long an operation usually takes, ns: the shorter of half a minute and lately. Times
 * that were slow until a moment ago are no measure of late, and times that are slow since a moment
 * ago are not usual yet. */
int64_t stepaf_verdict_usual_took(const struct stepaf_verdict_usual *usual);
/* Return how long an operation may take, and how late its start may be, before it counts as late;
 * ns. */
int64_t stepaf_verdict_late_took(const struct stepaf_verdict_usual *usual);
int64_t stepaf_verdict_late_idle(const struct stepaf_verdict_usual *usual);
/* Return the minimum that an operation has taken lately, ns; 0: too few are known. */
int64_t stepaf_verdict_least_took(const struct stepaf_verdict_usual *usual);
/* Fill took_ns, usual_ns, over_ns, phase and rail. */
void stepaf_verdict_judge(const struct stepaf_verdict_seen *seen,
                          const struct stepaf_verdict_usual *usual,
                          const struct stepaf_verdict_usual_peer *usual_peer,
                          stepaf_verdict_t *verdict_p);

#endif
