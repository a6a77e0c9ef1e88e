/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts: which phase, and which rank, made an operation late. */
#ifndef STEPAF_VERDICT_H
#define STEPAF_VERDICT_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** All phases: enumerator and name. New ones are appended. */
#define STEPAF_VERDICT_PHASE_MAP(_)                                                                \
    _(STEPAF_VERDICT_UNKNOWN, "unknown") /* the evidence does not suffice */                       \
    _(STEPAF_VERDICT_START, "start")     /* the caller started it late, or posting took long */    \
    _(STEPAF_VERDICT_THERE, "way there") /* from the attention rank's post to the FFN rank */      \
    _(STEPAF_VERDICT_FFN_QUEUE, "FFN queue") /* until the FFN rank's caller received it */         \
    _(STEPAF_VERDICT_FFN_WORK, "FFN work")   /* until that caller answered */                      \
    _(STEPAF_VERDICT_BACK, "way back")       /* from the answer to the attention rank */           \
    _(STEPAF_VERDICT_WAIT, "wait")           /* the answer had arrived before the caller waited */ \
    _(STEPAF_VERDICT_STARVED, "starved")     /* this rank's thread was not running on a core */    \
    _(STEPAF_VERDICT_NETWORK, "network") /* there or back; the clocks are too inaccurate to say */

/** Phase of an operation. */
typedef enum stepaf_verdict_phase {
#define STEPAF_VERDICT_PHASE_ENUM(name_, text_) name_,
    STEPAF_VERDICT_PHASE_MAP(STEPAF_VERDICT_PHASE_ENUM)
#undef STEPAF_VERDICT_PHASE_ENUM
        STEPAF_VERDICT_LAST
} stepaf_verdict_phase_t;

enum {
    STEPAF_VERDICT_PHASES = 12 /* size of arrays by phase, with space for new phases */
};

/** One late operation: it took more than twice its plan's usual time, or was started equally late
 *  after the preceding one. FFN ranks see what the attention rank reported. */
typedef struct stepaf_verdict {
    int64_t time_ns;   /* completion, on the common clock, see stepaf_clock_ns */
    int64_t took_ns;   /* from its start; STEPAF_VERDICT_START: from the preceding operation */
    int64_t usual_ns;  /* the median of these */
    uint32_t sequence; /* of the operation within its plan */
    uint16_t plan;     /* number of the plan at its attention rank */
    uint16_t phase;    /* stepaf_verdict_phase_t: the one that exceeded its usual time the most */
    int32_t peer;      /* rank of the other role at, to or from which the phase was; -1: none */
    int32_t rail;      /* the only late one of several rails to that peer: its index in
                   * STEPAF_NET_DEVICES, with TCP that of the connection; -1: all, or not known */
    int64_t over_ns[STEPAF_VERDICT_PHASES]; /* by phase: beyond the usual; 0: none, or not known */
} stepaf_verdict_t;

/** Totals over the last seconds; the setting STEPAF_VERDICT_WINDOW_S says how many. */
typedef struct stepaf_verdict_window {
    size_t size;         /* in: sizeof(stepaf_verdict_window_t) */
    int64_t window_ns;   /* length of the window */
    uint64_t operations; /* completed; 0 at an FFN rank */
    uint64_t late;       /* operations with a verdict; at an FFN rank, those reported to it */
    uint64_t unjudged;   /* late operations without one: too many at once, or not judged yet */
    int64_t usual_ns;    /* usual time of the plan that was late last; 0: none was */
    int32_t phase;       /* stepaf_verdict_phase_t of most verdicts; STEPAF_VERDICT_UNKNOWN: none */
    int32_t peer;        /* rank of the other role in most of these; -1: this rank, or none */
    uint64_t by_phase[STEPAF_VERDICT_PHASES]; /* late operations by the phase of their verdict */
    int64_t over_ns[STEPAF_VERDICT_PHASES];   /* by phase: total time beyond the usual */
    int32_t rail;      /* rail in most of the peer's verdicts of that phase; -1: none */
    uint32_t reserved; /* 0 */
} stepaf_verdict_window_t;

/** Totals of one peer over the same time: a cell of the matrix of attention and FFN ranks. Time
 *  attributed to this rank itself is not included. */
typedef struct stepaf_verdict_peer_sums {
    size_t size;   /* in: sizeof(stepaf_verdict_peer_t) */
    uint64_t late; /* operations whose verdict names the peer */
    uint64_t by_phase[STEPAF_VERDICT_PHASES];
    int64_t over_ns[STEPAF_VERDICT_PHASES];
} stepaf_verdict_peer_t;

/** Report which phases and peers made operations late over the last seconds.
 *  @param window_p  filled; the caller sets its size field.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_UNSUPPORTED (the setting STEPAF_VERDICT or
 *  STEPAF_TRACE is off); STEPAF_ERR_INVALID (@a window_p is NULL, or its size is too small).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_verdict_query(stepaf_context_h ctx,
                                                stepaf_verdict_window_t *window_p);

/** Report one peer's share of the window.
 *  @param peer_rank  within the other role's group; one of this rank's peers.
 *  @param peer_p     filled; the caller sets its size field.
 *  @return as for stepaf_verdict_query; STEPAF_ERR_INVALID also for @a peer_rank.
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_verdict_peer(stepaf_context_h ctx, int peer_rank,
                                               stepaf_verdict_peer_t *peer_p);

/** Copy the newest verdicts, oldest first.
 *
 *  A verdict becomes available shortly after its operation, while this rank makes progress: the FFN
 *  rank is asked for its times first.
 *  @param verdicts_p    @a capacity verdicts, @a verdict_size bytes apart; owned by the caller.
 *  @param verdict_size  sizeof(stepaf_verdict_t). No more than that is written to each.
 *  @param capacity      in verdicts; the library keeps 256.
 *  @param n_p           number of verdicts copied.
 *  @return as for stepaf_verdict_query; STEPAF_ERR_INVALID (NULL, or @a verdict_size is too small).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_verdict_read(stepaf_context_h ctx, stepaf_verdict_t *verdicts_p,
                                               size_t verdict_size, size_t capacity, size_t *n_p);

/** Return the name of @a phase.
 *  @return a literal; "?" for an unknown value.
 *
 *  Does not block. Cannot fail. */
STEPAF_API const char *stepaf_verdict_phase_name(stepaf_verdict_phase_t phase);

#ifdef __cplusplus
}
#endif
#endif
