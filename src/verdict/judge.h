/* SPDX-License-Identifier: Apache-2.0 */
/* Whose time it was: from what both ranks have seen of one operation, and what is usual. Nothing
 * but arithmetic.
 *
 * A stamp says when a rank has noticed something, not when it was there: an answer that comes while
 * the caller computes is noticed at the next poll. So each rank also knows since when it had not
 * polled before (its gap). What of a way may have been such a gap counts as that: as FFN queue, or
 * as this rank's wait. The network is accused only of what passed while the rank that waited for it
 * was looking. */
#ifndef STEPAF_VERDICT_JUDGE_H
#define STEPAF_VERDICT_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#include <stepaf/verdict.h>

#include "verdict/median.h"

/* One of several rails that was later than all others with its share of a message. */
struct stepaf_verdict_late_rail {
    int32_t rail; /* -1: there was none */
    int64_t ns;   /* that the others waited for it */
};

/* What was seen of an operation at one peer; all in ns. */
struct stepaf_verdict_seen {
    int64_t idle;  /* from what was before it to its start */
    int64_t took;  /* from there to its end */
    int64_t post;  /* until all was with the transports */
    int64_t way;   /* from there to the peer's answer */
    int64_t there; /* from there to its arrival at the peer: between two clocks */
    int64_t bound; /* which differ by no more; -1: that is not known */
    int64_t queue; /* what the peer tells; -1: it does not */
    int64_t work;  /* likewise */
    int64_t
        ffn_gap; /* before the arrival, the peer had not polled for so long; -1: it does not tell */
    int64_t own_gap; /* likewise this rank before the answer */
    int64_t in_wait; /* the part of that in which the caller waited */
    int64_t starved; /* the thread has waited for a core so long, about the time of the operation */
    struct stepaf_verdict_late_rail rail_there, rail_back;
};

/* Where it went; -1: not known. */
struct stepaf_verdict_spent {
    int64_t post, there, queue, work, back, wait;
    int64_t net; /* there and back together: this takes one clock alone */
};

/* What is usual of a plan, and of a plan at one peer: over about half a minute, but for lately,
 * which is how long its last operations took. */
struct stepaf_verdict_usual {
    struct stepaf_median took, idle, post, lately;
};

struct stepaf_verdict_usual_peer {
    struct stepaf_median there, queue, work, back, wait, net;
};

enum { STEPAF_VERDICT_SURE = 9 /* samples that make a median */ };

struct stepaf_verdict_spent stepaf_verdict_split(const struct stepaf_verdict_seen *seen);
void stepaf_verdict_learn(struct stepaf_verdict_usual_peer *usual,
                          const struct stepaf_verdict_spent *spent);
/* How long one takes usually, ns: of half a minute and lately the shorter. What was slow until a
 * moment ago is no measure for what is late now, and what is slow since a moment ago is not usual
 * yet. */
int64_t stepaf_verdict_usual_took(const struct stepaf_verdict_usual *usual);
/* How long an operation may take, and how late its start may come, before it counts as late; ns. */
int64_t stepaf_verdict_late_took(const struct stepaf_verdict_usual *usual);
int64_t stepaf_verdict_late_idle(const struct stepaf_verdict_usual *usual);
/* The least that one has taken lately, ns; 0: too few are known. */
int64_t stepaf_verdict_least_took(const struct stepaf_verdict_usual *usual);
/* Fill took_ns, usual_ns, over_ns, phase and rail. */
void stepaf_verdict_judge(const struct stepaf_verdict_seen *seen,
                          const struct stepaf_verdict_usual *usual,
                          const struct stepaf_verdict_usual_peer *usual_peer,
                          stepaf_verdict_t *verdict_p);

#endif
