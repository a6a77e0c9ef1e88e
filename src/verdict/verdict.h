/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts: where the time of late operations went. README.md describes the method.
 *
 *   watch.c    called by the core when an operation is complete, and after polls: picks operations
 *   ask.c      asks the FFN rank for its times; at the FFN rank, answers from the trace
 *   judge.c    decides where the time went
 *   window.c   the sums of the last seconds, and the last verdicts
 *   starve.c   how long a thread has waited for a core
 *   rails.c    which of several rails was late with a message */
#ifndef STEPAF_VERDICT_VERDICT_H
#define STEPAF_VERDICT_VERDICT_H

#include "core/ctx.h"
#include "core/watch.h"
#include "verdict/judge.h"

enum {
    STEPAF_VERDICT_CASES = 64,   /* operations under examination */
    STEPAF_VERDICT_KEPT = 256,   /* verdicts that can be read */
    STEPAF_VERDICT_BUCKETS = 10, /* parts of the window */
    STEPAF_VERDICT_HELD_UP = 256 /* messages that waited for one of several rails */
};

/* What is known of a plan. The limits that each operation is compared with are in the plan itself:
 * see struct stepaf_watch_plan. */
struct stepaf_verdict_plan {
    uint32_t generation;  /* of the plan's handle */
    uint32_t stride;      /* distance in operations between those picked to learn from */
    uint32_t turn;        /* the peer to learn of next */
    uint64_t first, last; /* ticks: first and last pick to learn from */
    /* ticks: last pick for the half minute, with the times that its peers report */
    uint64_t learnt;
    bool is_due; /* the next pick is for the half minute */
    struct stepaf_verdict_usual usual;
    struct stepaf_verdict_usual_peer at[]; /* by peer */
};

/* Report of a transport on a START or RESPONSE that came over several rails. */
struct stepaf_verdict_held_up {
    uint32_t p; /* index of the peer */
    uint32_t plan, seq;
    uint32_t rail;  /* the last rail */
    uint64_t ticks; /* time that the others waited for it */
};

enum stepaf_verdict_case_state {
    STEPAF_CASE_FREE,
    STEPAF_CASE_NEW, /* the peer must still be asked */
    STEPAF_CASE_ASKED
};

/* An operation at one peer whose times are outstanding. In ticks. */
struct stepaf_verdict_case {
    uint8_t state;
    bool is_late;
    bool is_learnt;  /* the usual times are learnt from it */
    bool on_streams; /* operation of a stream plan: no thread has waited for it */
    bool refused;    /* a start had been rejected for lack of a slot: not the caller's time */
    uint16_t plan;
    uint32_t generation;
    uint32_t seq;
    uint32_t p;                 /* index of the peer */
    uint32_t queue_ns, work_ns; /* reported with the answer; UINT32_MAX: not reported */
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
    int64_t opened_ns; /* CLOCK_MONOTONIC */
    int64_t began_ns;  /* start of the newest bucket */
    uint32_t at;       /* index of the newest bucket */
    /* operations ever completed, at the start of the bucket */
    uint64_t completed[STEPAF_VERDICT_BUCKETS];
    uint64_t unjudged[STEPAF_VERDICT_BUCKETS];
    struct stepaf_verdict_cell *cells; /* n_peers + 1 per bucket: the last is this rank's own */
    struct stepaf_metrics_late *ever;  /* n_peers + 1 entries, since the context was made */
    int64_t usual_ns;
    uint64_t n_kept; /* ever */
    stepaf_verdict_t kept[STEPAF_VERDICT_KEPT];
};

/* How long the thread has waited for a core, see starve.c. */
struct stepaf_verdict_starve {
    const void *thread; /* the thread of the reading */
    int64_t waited_ns;  /* the reading; -1: none */
    int64_t last_ns;    /* growth up to the reading, beyond the usual */
    double usual; /* fraction of time that the thread has waited lately; less than 0: unknown */
    uint64_t at;  /* ticks */
};

struct stepaf_verdict_state {
    struct stepaf_watch watch; /* first: the core passes it back */
    struct stepaf_ctx *ctx;
    uint64_t would_block; /* value of the counter when last read */
    uint32_t n_open;      /* open cases */
    uint32_t n_plans;
    struct stepaf_verdict_plan **plans; /* by plan number */
    uint64_t replaced, renewed; /* ticks: a stamp that may have been old, and its replacement */
    struct stepaf_verdict_starve starve;
    int64_t starved_ns; /* FFN: at the last request of a peer */
    struct stepaf_verdict_sums window;
    int64_t logged_ns;
    int64_t shown_ns;   /* last time shown to tools */
    uint64_t n_logged;  /* of window.n_kept */
    uint64_t n_held_up; /* ever */
    struct stepaf_verdict_held_up held_up[STEPAF_VERDICT_HELD_UP];
    struct stepaf_verdict_case cases[STEPAF_VERDICT_CASES];
};

/* Start watching, if the setting says so. Roles and peers are known; no plan has been made. Without
 * memory there are no verdicts, and that is logged: the other ranks already count on this rank. */
void stepaf_verdict_open(struct stepaf_ctx *ctx);
/* Return the context's state; NULL: verdicts are off. */
struct stepaf_verdict_state *stepaf_verdict_of(const struct stepaf_ctx *ctx);

#endif
