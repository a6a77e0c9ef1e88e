/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: a record of each step of each operation, kept in a ring. */
#ifndef STEPAF_TRACE_H
#define STEPAF_TRACE_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** All events: enumerator and name. */
#define STEPAF_EVENT_MAP(_)                                                                  \
    _(STEPAF_EVENT_START, "start")         /* attention: start was called */                 \
    _(STEPAF_EVENT_POSTED, "posted")       /* attention: one tensor passed to a transport */ \
    _(STEPAF_EVENT_NOTIFIED, "notified")   /* attention: all passed to the transports */     \
    _(STEPAF_EVENT_ARRIVED, "arrived")     /* FFN: the batch is complete here */             \
    _(STEPAF_EVENT_HANDLED, "handled")     /* FFN: the caller received the batch */          \
    _(STEPAF_EVENT_RESPONDED, "responded") /* FFN: the caller answered */                    \
    _(STEPAF_EVENT_RELEASED, "released")   /* FFN: the batch was released */                 \
    _(STEPAF_EVENT_ANSWERED, "answered")   /* attention: the answer of one peer arrived */   \
    _(STEPAF_EVENT_COMPLETED, "completed") /* attention: the operation is complete */        \
    _(STEPAF_EVENT_WAITED, "waited")       /* attention: a wait for it began */

/** Kind of a trace record. If all pushes of an operation are 4 KiB or less, start, posted and
 *  notified have the time of the last of them: taking a time takes about as long as posting. An
 *  arrival has the time of the last poll before it, which found nothing: if the thread was
 *  preempted after that poll, the time is earlier than the arrival by as long. */
typedef enum stepaf_event {
#define STEPAF_EVENT_ENUM(name_, text_) name_,
    STEPAF_EVENT_MAP(STEPAF_EVENT_ENUM)
#undef STEPAF_EVENT_ENUM
        STEPAF_EVENT_LAST
} stepaf_event_t;

/** One record.
 *
 *  With STEPAF_STREAM_TIMES=on, operations on streams leave the same records, except "posted", with
 *  the times at which the streams reached these points. Their sequence counts from the last commit,
 *  including replays of graphs. They are added when the library reads what the GPU has noted, so
 *  they may follow later records. Without the setting, operations on streams leave no records. In
 *  either case, what the library moves through the host for them appears as operations of the
 *  library's own plans. */
typedef struct stepaf_trace_record {
    int64_t time_ns;   /* on the common clock, see stepaf_clock_ns */
    uint32_t sequence; /* of the operation within its plan */
    uint16_t plan;     /* number of the plan at its attention rank */
    uint16_t event;    /* stepaf_event_t */
    int32_t peer;      /* rank within the other role's group; -1: all */
    int32_t tensor;    /* index within the operation; -1: all */
    uint64_t bytes;
} stepaf_trace_record_t;

/** Copy the newest trace records, oldest first.
 *  @param records_p    @a capacity records, @a record_size bytes apart; owned by the caller.
 *  @param record_size  sizeof(stepaf_trace_record_t). No more than that is written to each record.
 *  @param capacity     in records; the ring holds the setting STEPAF_TRACE_RECORDS.
 *  @param n_p          number of records copied.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (NULL, or @a record_size is too small).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_trace_read(stepaf_context_h ctx, stepaf_trace_record_t *records_p,
                                             size_t record_size, size_t capacity, size_t *n_p);

/** Discard all trace records.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE.
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_trace_clear(stepaf_context_h ctx);

/** Return the name of @a event.
 *  @return a literal; "?" for an unknown value.
 *
 *  Any thread. Does not block. Cannot fail. */
STEPAF_API const char *stepaf_event_name(stepaf_event_t event);

#ifdef __cplusplus
}
#endif
#endif
