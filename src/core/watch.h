/* SPDX-License-Identifier: Apache-2.0 */
/* Watching operations, to find out later whose time it was: the only way from core/ up to verdict/.
 * The host's path checks for a watch only where something is already unusual (an operation's
 * answers, a vain poll, a poll after which to look for dead peers), and answers of 32 bits have
 * another path if there is a watch. So an operation costs nothing more without one. */
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

/* Gaps are kept by levels: the latest of each. The gaps of a level are twice as long as those of
 * the one before. */
enum { STEPAF_WATCH_LEVELS = 16, STEPAF_WATCH_GAPS = 128 };

/* The time from the begin of a poll that found nothing to the end of the next such poll that is
 * noted: what was noticed meanwhile may have been there all that time. */
struct stepaf_watch_gap {
    uint64_t to; /* ticks */
    uint64_t took;
};

/* Which operations of a plan are picked; times in ticks. The watch sets it. */
struct stepaf_watch_plan {
    uint32_t next;       /* sequence of one that is always picked, or the next after it */
    uint64_t least_took; /* one that took less, */
    uint64_t more_took;  /* or that and this at least, is picked; INT64_MAX at most */
    uint64_t late_idle;  /* or one that had been idle for as long before its start */
};

/* For a plan of which nothing is known: none is picked before operation @a next. */
static inline struct stepaf_watch_plan stepaf_watch_plan_begin(uint32_t next)
{
    return (struct stepaf_watch_plan){.next = next, .more_took = INT64_MAX, .late_idle = INT64_MAX};
}

/* Whether an operation is always picked. */
static inline bool stepaf_watch_is_due(const struct stepaf_watch_plan *watched, uint32_t seq)
{
    return (int32_t)(seq - watched->next) >= 0;
}

/* All under the context's lock. */
struct stepaf_watch_ops {
    /* A plan is made, or its operations are counted again, from @a first on. False: do not watch
     * them. */
    bool (*meet)(struct stepaf_watch *watch, struct stepaf_plan_obj *plan, uint32_t first);
    /* An operation that stepaf_op_tell_watch picks is complete. @a now: ticks; @a idle: the idle
     * time before its start, likewise. */
    void (*pick)(struct stepaf_watch *watch, struct stepaf_op *op, uint64_t now, uint64_t idle);
    /* Do what is due after a poll. */
    void (*look)(struct stepaf_watch *watch, uint64_t now);
    /* ASK, TELL or TOLD: untrusted input. */
    void (*take)(struct stepaf_watch *watch, struct stepaf_peer *peer,
                 const struct stepaf_msg *msg);
    /* What tools of this machine see; what was there before may stay. */
    void (*show)(struct stepaf_watch *watch, struct stepaf_metrics_verdict *shown);
    /* And what they count: an entry for each peer, and one for this rank. */
    const struct stepaf_metrics_late *(*late)(const struct stepaf_watch *watch);
    /* Add the memory that it takes to fixed, declared and per_peer. */
    void (*count)(const struct stepaf_watch *watch, stepaf_memory_use_t *use);
    void (*close)(struct stepaf_watch *watch);
};

struct stepaf_watch {
    const struct stepaf_watch_ops *ops;
    uint64_t last_done;                   /* when the last operation was complete, ticks */
    uint64_t noted;                       /* the last poll in vain that was noted, ticks */
    uint64_t polled;                      /* before that one began, ticks */
    uint64_t note_each;                   /* ticks: polls are noted no closer than that */
    uint64_t gaps_from;                   /* ticks: the shortest gap that is noted */
    uint64_t look_due;                    /* ticks: when to look; 0: after this poll */
    uint64_t live_due;                    /* ticks: when to check whether peers live */
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

/* A vain poll is over. A thread may lose its core within a poll, between its look and the stamp:
 * only of the time before the poll began is it known that nothing was there. @a before: when a poll
 * before it was over. */
static inline void stepaf_watch_poll(struct stepaf_watch *watch, uint64_t now, uint64_t before)
{
    uint64_t took = now - watch->polled;

    if ((int64_t)took >= (int64_t)watch->gaps_from)
        stepaf_watch_note_gap(watch, now, took);
    watch->polled = before;
    watch->noted = now;
}

#endif
