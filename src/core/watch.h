/* SPDX-License-Identifier: Apache-2.0 */
/* Who watches operations, to tell later whose time it was: the only way from core/ up to verdict/. The host's path
 * asks only where something is none of the usual already (an operation's answers, an answer in 32 bits, a poll
 * after which is to be looked for dead peers): so it costs nothing where nobody watches. */
#ifndef STEPAF_CORE_WATCH_H
#define STEPAF_CORE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct stepaf_ctx;
struct stepaf_msg;
struct stepaf_op;
struct stepaf_peer;
struct stepaf_watch;

enum { STEPAF_WATCH_GAPS = 2048 };

/* A time from one poll that has found nothing to the next: what came meanwhile may have lain there. */
struct stepaf_watch_gap {
    uint64_t to; /* ticks */
    uint64_t took;
};

/* All under the context's lock. */
struct stepaf_watch_ops {
    /* An operation is complete, with all that it needs: once for each. @a now: ticks. */
    void (*done)(struct stepaf_watch *watch, const struct stepaf_op *op, uint64_t now);
    /* What is due, or has been asked for (due = 0), after a poll. */
    void (*look)(struct stepaf_watch *watch, uint64_t now);
    /* ASK, TELL or TOLD: input, not truth. */
    void (*take)(struct stepaf_watch *watch, struct stepaf_peer *peer,
                 const struct stepaf_msg *msg);
    void (*close)(struct stepaf_watch *watch);
};

struct stepaf_watch {
    const struct stepaf_watch_ops *ops;
    uint64_t polled;    /* the last poll that has found nothing, ticks */
    uint64_t gaps_from; /* ticks: how long one is that is noted */
    uint64_t due;       /* ticks: when to look */
    uint64_t look_at;   /* the context's, which is 0 while it is watched: so each poll asks */
    uint64_t n_gaps;    /* ever */
    struct stepaf_watch_gap gaps[STEPAF_WATCH_GAPS];
};

/* A poll is over, which has brought something or not. */
static inline void stepaf_watch_poll(struct stepaf_watch *watch, uint64_t now, bool has_come)
{
    uint64_t took = now - watch->polled;

    if (!has_come && (int64_t)took > 0) {
        if (took >= watch->gaps_from)
            watch->gaps[watch->n_gaps++ % STEPAF_WATCH_GAPS] = (struct stepaf_watch_gap){now, took};
        watch->polled = now;
    }
    if ((int64_t)(now - watch->due) >= 0)
        watch->ops->look(watch, now);
}

#endif
