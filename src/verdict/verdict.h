/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts: of operations that are late, whose time it was. README.md says how that is found out.
 *
 *   watch.c    what the core calls when an operation is complete, and after polls: picks operations
 *   ask.c      asks the FFN rank for its times; there, answers from the trace
 *   judge.c    whose time it was
 *   window.c   the sums of the last seconds, and the last verdicts
 *   starve.c   how long a thread has waited for a core */
#ifndef STEPAF_VERDICT_VERDICT_H
#define STEPAF_VERDICT_VERDICT_H

#include "core/ctx.h"
#include "core/watch.h"
#include "verdict/judge.h"

enum {
    STEPAF_VERDICT_CASES = 64,   /* operations that are being looked into */
    STEPAF_VERDICT_KEPT = 256,   /* verdicts that can be read */
    STEPAF_VERDICT_BUCKETS = 10, /* parts of the window */
    STEPAF_VERDICT_HELD_UP = 256 /* messages that waited for one of several rails */
};

/* What is known of a plan. What each operation is compared with is in the plan itself: see struct
 * stepaf_watch_plan. */
struct stepaf_verdict_plan {
    uint32_t generation;  /* of the plan's handle */
    uint32_t stride;      /* operations from one that is picked to learn from to the next */
    uint32_t turn;        /* the peer to learn of next */
    uint64_t first, last; /* ticks: when one was picked to learn from */
    uint64_t learnt;      /* ticks: and when for the half minute, with what its peers tell */
    bool is_due;          /* to learn for that, from the next one that is picked */
    struct stepaf_verdict_usual usual;
    struct stepaf_verdict_usual_peer at[]; /* peers */
};

/* What transports tell of a START or RESPONSE that came by several rails. */
struct stepaf_verdict_held_up {
    uint32_t p; /* index of the peer */
    uint32_t plan, seq;
    uint32_t rail;  /* that was the last */
    uint64_t ticks; /* that the others waited for it */
};

enum stepaf_verdict_case_state {
    STEPAF_CASE_FREE,
    STEPAF_CASE_NEW, /* the peer is to be asked */
    STEPAF_CASE_ASKED
};

/* An operation at one peer, of which the peer's times are still to come. In ticks. */
struct stepaf_verdict_case {
    uint8_t state;
    bool is_late;
    bool is_learnt;  /* what is usual is learnt from it */
    bool on_streams; /* it is one of a stream plan: no thread has waited for it */
    bool refused; /* a start had been refused for want of a slot: that is not the caller's time */
    uint16_t plan;
    uint32_t generation;
    uint32_t seq;
    uint32_t p;                 /* index of the peer */
    uint32_t queue_ns, work_ns; /* as the answer has told; UINT32_MAX: it has not */
    uint64_t started, notified, answered, done, asked;
    uint64_t idle, gap, in_wait;
    int64_t starved_ns;
    struct stepaf_verdict_late_rail back; /* on the way back */
};

/* A part of the window, of one peer or of this rank itself. */
struct stepaf_verdict_cell {
    uint32_t late[STEPAF_VERDICT_PHASES];
    int64_t over_ns[STEPAF_VERDICT_PHASES];
};

struct stepaf_verdict_sums {
    int64_t bucket_ns;
    int64_t opened_ns;                          /* CLOCK_MONOTONIC */
    int64_t began_ns;                           /* of the newest bucket */
    uint32_t at;                                /* which that is */
    uint64_t completed[STEPAF_VERDICT_BUCKETS]; /* operations, ever, when it began */
    uint64_t unjudged[STEPAF_VERDICT_BUCKETS];
    struct stepaf_verdict_cell *cells; /* by bucket n_peers + 1: the last is this rank's own */
    struct stepaf_metrics_late *ever;  /* likewise, since the context's begin */
    int64_t usual_ns;
    uint64_t n_kept; /* ever */
    stepaf_verdict_t kept[STEPAF_VERDICT_KEPT];
};

/* How long the thread has waited for a core, see starve.c. */
struct stepaf_verdict_starve {
    const void *thread; /* whose reading it was */
    int64_t waited_ns;  /* what that said; -1: nothing */
    int64_t last_ns;    /* what it had grown by then, beyond what it usually does */
    double usual;       /* part of the time that it waits, of late; less than 0: not known */
    uint64_t at;        /* ticks */
};

struct stepaf_verdict_state {
    struct stepaf_watch watch; /* first: the core hands it back */
    struct stepaf_ctx *ctx;
    uint64_t would_block; /* the counter, when it was looked at last */
    uint32_t n_open;      /* cases */
    uint32_t n_plans;
    struct stepaf_verdict_plan **plans; /* by number */
    uint64_t replaced, renewed; /* ticks: a stamp that may have been old, and what stands for it */
    struct stepaf_verdict_starve starve;
    int64_t starved_ns; /* FFN: when a peer asked last */
    struct stepaf_verdict_sums window;
    int64_t logged_ns;
    int64_t shown_ns;   /* to tools */
    uint64_t n_logged;  /* of window.n_kept */
    uint64_t n_held_up; /* ever */
    struct stepaf_verdict_held_up held_up[STEPAF_VERDICT_HELD_UP];
    struct stepaf_verdict_case cases[STEPAF_VERDICT_CASES];
};

/* Watch, if the setting says so. Roles and peers are known; no plan has been made. Without memory
 * for it there are no verdicts, which is said: the others know already that this rank is there. */
void stepaf_verdict_open(struct stepaf_ctx *ctx);
/* The context's; NULL: it is off. */
struct stepaf_verdict_state *stepaf_verdict_of(const struct stepaf_ctx *ctx);

#endif
