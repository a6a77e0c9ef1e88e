/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts: of operations that were late, whose time it was. */
#ifndef STEPAF_VERDICT_H
#define STEPAF_VERDICT_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Every phase: enumerator and name. New ones are appended. */
#define STEPAF_VERDICT_PHASE_MAP(_)                                                                \
    _(STEPAF_VERDICT_UNKNOWN, "unknown") /* not told by what is known for certain */               \
    _(STEPAF_VERDICT_START, "start")     /* the caller came late to start, or posting took long */ \
    _(STEPAF_VERDICT_THERE, "way there") /* from the attention rank's post to the FFN rank */      \
    _(STEPAF_VERDICT_FFN_QUEUE, "FFN queue") /* until the FFN rank's caller had received it */     \
    _(STEPAF_VERDICT_FFN_WORK, "FFN work")   /* until that had answered */                         \
    _(STEPAF_VERDICT_BACK, "way back")       /* from there to the attention rank */                \
    _(STEPAF_VERDICT_WAIT, "wait")       /* it was there, but the caller had not come to wait */   \
    _(STEPAF_VERDICT_STARVED, "starved") /* this rank's thread was not on its core */              \
    _(STEPAF_VERDICT_NETWORK, "network") /* one of the two ways; the clocks do not tell which */

/** Whose time it was. */
typedef enum stepaf_verdict_phase {
#define STEPAF_VERDICT_PHASE_ENUM(name_, text_) name_,
    STEPAF_VERDICT_PHASE_MAP(STEPAF_VERDICT_PHASE_ENUM)
#undef STEPAF_VERDICT_PHASE_ENUM
        STEPAF_VERDICT_LAST
} stepaf_verdict_phase_t;

enum {
    STEPAF_VERDICT_PHASES = 12 /* room in arrays by phase, for those to come */
};

/** One operation that was late: it took more than twice what its plan's operations usually take, or its
 *  start came as late after what was before. At an FFN rank, what the attention rank has told of it. */
typedef struct stepaf_verdict {
    int64_t time_ns;   /* when it was complete, on the common clock, see stepaf_clock_ns */
    int64_t took_ns;   /* from its start; STEPAF_VERDICT_START: from what was before it */
    int64_t usual_ns;  /* the median of these */
    uint32_t sequence; /* of the operation within its plan */
    uint16_t plan;     /* number of the plan at its attention rank */
    uint16_t phase;    /* stepaf_verdict_phase_t: the one that took the most beyond what is usual */
    int32_t peer; /* rank of the other role that this was at, or on the way to or from; -1: none */
    int32_t rail; /* the one rail that was late, of several to that peer: its place in
                   * STEPAF_NET_DEVICES; with TCP the connection; -1: all were, or it is not known */
    int64_t over_ns[STEPAF_VERDICT_PHASES]; /* by phase: beyond the usual; 0: none, or not known */
} stepaf_verdict_t;

/** The last seconds, as many as the setting STEPAF_VERDICT_WINDOW_S says. */
typedef struct stepaf_verdict_window {
    size_t size;         /* in: sizeof(stepaf_verdict_window_t) */
    int64_t window_ns;   /* how long a time that is */
    uint64_t operations; /* completed; at an FFN rank 0 */
    uint64_t late;       /* of these, with a verdict; at an FFN rank, those it was told of */
    uint64_t unjudged;   /* late as well, but not looked at: too many at once, or not yet */
    int64_t usual_ns;    /* median of the plan whose operation was late last; 0: none was */
    int32_t phase; /* stepaf_verdict_phase_t that took the most; STEPAF_VERDICT_UNKNOWN: none did */
    int32_t peer;  /* where it took the most; -1: this rank, or none */
    uint64_t by_phase[STEPAF_VERDICT_PHASES]; /* late operations by their verdict */
    int64_t over_ns[STEPAF_VERDICT_PHASES];   /* by phase: beyond what is usual, in all */
    int32_t rail;      /* of the peer's verdicts of that phase most name it; -1: most name none */
    uint32_t reserved; /* 0 */
} stepaf_verdict_window_t;

/** The same of one peer: a cell of the matrix of attention and FFN ranks. What was this rank's own is in none
 *  of them. */
typedef struct stepaf_verdict_peer_sums {
    size_t size;   /* in: sizeof(stepaf_verdict_peer_t) */
    uint64_t late; /* operations whose verdict names the peer */
    uint64_t by_phase[STEPAF_VERDICT_PHASES];
    int64_t over_ns[STEPAF_VERDICT_PHASES];
} stepaf_verdict_peer_t;

/** Report whose time it was over the last seconds.
 *  @param window_p  filled; its size is set by the caller.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_UNSUPPORTED (the setting STEPAF_VERDICT is off, or
 *  STEPAF_TRACE is); STEPAF_ERR_INVALID (@a window_p is NULL, or its size too small). Any thread. Never
 *  blocks. */
STEPAF_API stepaf_status_t stepaf_verdict_query(stepaf_context_h ctx,
                                                stepaf_verdict_window_t *window_p);

/** Report the part of the last seconds that one peer had.
 *  @param peer_rank  within the other role's group; one of this rank's peers.
 *  @param peer_p     filled; its size is set by the caller.
 *  @return as stepaf_verdict_query; STEPAF_ERR_INVALID also for @a peer_rank. Any thread. Never blocks. */
STEPAF_API stepaf_status_t stepaf_verdict_peer(stepaf_context_h ctx, int peer_rank,
                                               stepaf_verdict_peer_t *peer_p);

/** Copy the newest verdicts, oldest first. One comes a moment after its operation, as the FFN rank is asked
 *  for its times: when this rank makes progress.
 *  @param verdicts_p    @a capacity verdicts, @a verdict_size bytes apart; owned by the caller.
 *  @param verdict_size  sizeof(stepaf_verdict_t). No more than that is written to each.
 *  @param capacity      in verdicts; the library keeps 256.
 *  @param n_p           number of verdicts copied.
 *  @return as stepaf_verdict_query; STEPAF_ERR_INVALID (NULL, or @a verdict_size too small). Any thread.
 *  Never blocks. */
STEPAF_API stepaf_status_t stepaf_verdict_read(stepaf_context_h ctx, stepaf_verdict_t *verdicts_p,
                                               size_t verdict_size, size_t capacity, size_t *n_p);

/** Return the name of @a phase; "?" for an unknown value. Any thread, never blocks, cannot fail. */
STEPAF_API const char *stepaf_verdict_phase_name(stepaf_verdict_phase_t phase);

#ifdef __cplusplus
}
#endif
#endif
