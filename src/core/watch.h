/* SPDX-License-Identifier: Apache-2.0 */
/* Who watches operations, to tell later whose time it was: the only way from core/ up to verdict/.
 * The host's path asks only where something is none of the usual already (an operation's answers,
 * an answer in 32 bits, a poll after which is to be looked for dead peers): so it costs nothing
 * where nobody watches. */
#ifndef STEPAF_CORE_WATCH_H
#define STEPAF_CORE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include <stepaf/memory.h>

struct stepaf_ctx;
struct stepaf_metrics_late;
struct stepaf_metrics_verdict;
struct stepaf_msg;
struct stepaf_op;
struct stepaf_peer;
struct stepaf_plan_obj;
struct stepaf_watch;

/* Gaps are kept by levels, each of gaps twice as long as those of the one before: the latest of
 * each. */
enum { STEPAF_WATCH_LEVELS = 16, STEPAF_WATCH_GAPS = 128 };

/* A time from the begin of a poll that has found nothing to the end of the next such: what was
 * noticed meanwhile may have lain there since. */
struct stepaf_watch_gap {
    uint64_t to; /* ticks */
    uint64_t took;
};

/* All under the context's lock. */
struct stepaf_watch_ops {
    /* A plan is made. False: its operations are not to be watched. */
    bool (*meet)(struct stepaf_watch *watch, const struct stepaf_plan_obj *plan);
    /* One of its operations is complete, with all that it needs: once for each. @a now: ticks.
     * Always true, so that whoever says that can leave it to this. */
    bool (*done)(struct stepaf_watch *watch, const struct stepaf_op *op, uint64_t now);
    /* What is due, or has been asked for (stepaf_watch_soon), after a poll. */
    void (*look)(struct stepaf_watch *watch, uint64_t now);
    /* ASK, TELL or TOLD: input, not truth. */
    void (*take)(struct stepaf_watch *watch, struct stepaf_peer *peer,
                 const struct stepaf_msg *msg);
    /* What tools of this machine are to see; what was there before may stay. */
    void (*show)(struct stepaf_watch *watch, struct stepaf_metrics_verdict *shown);
    /* And what they count: an entry for each peer, and one for this rank. */
    const struct stepaf_metrics_late *(*late)(const struct stepaf_watch *watch);
    /* What memory it takes: it is added to fixed, declared and per_peer. */
    void (*count)(const struct stepaf_watch *watch, stepaf_memory_use_t *use);
    void (*close)(struct stepaf_watch *watch);
};

struct stepaf_watch {
    const struct stepaf_watch_ops *ops;
    uint64_t ended;     /* the last poll, ticks */
    uint64_t polled;    /* before the last poll that has found nothing began, ticks */
    uint64_t gaps_from; /* ticks: how long one is that is noted */
    uint64_t due;       /* ticks: the first of these two */
    uint64_t look_due;  /* when to look; 0: after this poll */
    uint64_t look_at;   /* the context's, which is 0 while it is watched: so each poll asks */
    uint64_t n_gaps[STEPAF_WATCH_LEVELS]; /* noted ever, of each level */
    struct stepaf_watch_gap gaps[STEPAF_WATCH_LEVELS][STEPAF_WATCH_GAPS];
};

/* Long gaps are kept for longer than short ones, of which there may be thousands while a rank
 * works. */
static inline void stepaf_watch_note_gap(struct stepaf_watch *watch, uint64_t to, uint64_t took)
{
    int level = __builtin_clzll(watch->gaps_from | 1) - __builtin_clzll(took | 1);

    if (level < 0)
        level = 0;
    if (level >= STEPAF_WATCH_LEVELS)
        level = STEPAF_WATCH_LEVELS - 1;
    watch->gaps[level][watch->n_gaps[level]++ % STEPAF_WATCH_GAPS] =
        (struct stepaf_watch_gap){to, took};
}

/* Have it look after this poll. */
static inline void stepaf_watch_soon(struct stepaf_watch *watch)
{
    watch->look_due = 0;
    watch->due = 0;
}

/* A poll is over, which has brought something or not. Whether anything is due. A thread may lose
 * its core within a poll, between its look and the stamp: that nothing was there is known of the
 * time before it began only. */
static inline bool stepaf_watch_poll(struct stepaf_watch *watch, uint64_t now, bool has_come)
{
    if (!has_come) {
        uint64_t took = now - watch->polled;
        if ((int64_t)took >= (int64_t)watch->gaps_from)
            stepaf_watch_note_gap(watch, now, took);
        watch->polled = watch->ended;
    }
    watch->ended = now;
    return (int64_t)(now - watch->due) >= 0;
}

#endif
