/* SPDX-License-Identifier: Apache-2.0 */
/* The interface for watching operations, to judge later where their time went: the only way from
 * core/ up to verdict/. The host's path asks the watch only on slow paths (an operation's answers,
 * a vain poll, a poll that is followed by a look for dead peers), and 32-bit answers take another
 * path while somebody watches. An operation therefore costs nothing more while nobody watches. */
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

/* Gaps are kept in levels. The gaps of each level are twice as long as those of the previous one;
 * each level keeps the latest. */
enum { STEPAF_WATCH_LEVELS = 16, STEPAF_WATCH_GAPS = 128 };

/* A time from the start of a vain poll to the end of the next vain poll that is noted: what was
 * noticed meanwhile may have been there since the start. */
struct stepaf_watch_gap {
    uint64_t to; /* ticks */
    uint64_t took;
};

/* Which operations of a plan are picked; times in ticks. The watch sets it. */
struct stepaf_watch_plan {
    uint32_t next;       /* sequence of the next operation that is picked in any case */
    uint64_t least_took; /* an operation that took less than this, */
    uint64_t more_took;  /* or at least least_took plus this, is picked; INT64_MAX at most */
    uint64_t late_idle;  /* or an operation that was idle this long before its start */
};

/* Return the initial state of a plan of which nothing is known: no operation before @a next is
 * picked. */
static inline struct stepaf_watch_plan stepaf_watch_plan_begin(uint32_t next)
{
    return (struct stepaf_watch_plan){.next = next, .more_took = INT64_MAX, .late_idle = INT64_MAX};
}

/* Return whether an operation is picked in any case. */
static inline bool stepaf_watch_is_due(const struct stepaf_watch_plan *watched, uint32_t seq)
{
    return (int32_t)(seq - watched->next) >= 0;
}

/* All functions are called under the context's lock. */
struct stepaf_watch_ops {
    /* A plan is made, or its operations are counted anew, from @a first on. Return false if they
     * are not to be watched. */
    bool (*meet)(struct stepaf_watch *watch, struct stepaf_plan_obj *plan, uint32_t first);
    /* An operation that stepaf_op_tell_watch picks is complete. @a now: ticks; @a idle: idle time
     * before its start, in ticks. */
    void (*pick)(struct stepaf_watch *watch, struct stepaf_op *op, uint64_t now, uint64_t idle);
    /* Do what is due after a poll. */
    void (*look)(struct stepaf_watch *watch, uint64_t now);
    /* Take ASK, TELL or TOLD: untrusted input. */
    void (*take)(struct stepaf_watch *watch, struct stepaf_peer *peer,
                 const struct stepaf_msg *msg);
    /* Fill in what tools on this machine see. Previous content may stay. */
    void (*show)(struct stepaf_watch *watch, struct stepaf_metrics_verdict *shown);
    /* Return what tools count: an entry for each peer, and one for this rank. */
    const struct stepaf_metrics_late *(*late)(const struct stepaf_watch *watch);
    /* Add the memory that the watch takes to fixed, declared and per_peer. */
    void (*count)(const struct stepaf_watch *watch, stepaf_memory_use_t *use);
    void (*close)(struct stepaf_watch *watch);
};

struct stepaf_watch {
    const struct stepaf_watch_ops *ops;
    uint64_t last_done;                   /* completion of the last operation, ticks */
    uint64_t noted;                       /* the last vain poll that was noted, ticks */
    uint64_t polled;                      /* a time before that poll began, ticks */
    uint64_t note_each;                   /* ticks: minimum distance of noted polls */
    uint64_t gaps_from;                   /* ticks: minimum length of a noted gap */
    uint64_t look_due;                    /* ticks: when to call look; 0: after this poll */
    uint64_t live_due;                    /* ticks: when to check that peers are alive */
    uint64_t n_gaps[STEPAF_WATCH_LEVELS]; /* gaps ever noted, by level */
    struct stepaf_watch_gap gaps[STEPAF_WATCH_LEVELS][STEPAF_WATCH_GAPS];
};

/* Note a gap. Long gaps are kept for longer than short ones, of which there may be thousands while
 * a rank works. */
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

/* Note a vain poll. A thread may lose its core within a poll, between its look and the stamp: a
 * vain poll proves that nothing was there only for the time before it began. @a before: end of an
 * earlier poll. */
static inline void stepaf_watch_poll(struct stepaf_watch *watch, uint64_t now, uint64_t before)
{
    uint64_t took = now - watch->polled;

    if ((int64_t)took >= (int64_t)watch->gaps_from)
        stepaf_watch_note_gap(watch, now, took);
    watch->polled = before;
    watch->noted = now;
}

#endif
