/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: a record of each step of each operation, kept in a ring. */
#ifndef STEPAF_TRACE_H
#define STEPAF_TRACE_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a trace record marks. */
#define STEPAF_EVENT_MAP(_)                                                                \
    _(STEPAF_EVENT_START, "start")         /* attention: start was called */               \
    _(STEPAF_EVENT_POSTED, "posted")       /* attention: one tensor handed to transport */ \
    _(STEPAF_EVENT_NOTIFIED, "notified")   /* attention: the peer was told */              \
    _(STEPAF_EVENT_ARRIVED, "arrived")     /* FFN: the batch is complete here */           \
    _(STEPAF_EVENT_HANDLED, "handled")     /* FFN: the batch was given to the caller */    \
    _(STEPAF_EVENT_RESPONDED, "responded") /* FFN: the caller gave the answer   */         \
    _(STEPAF_EVENT_RELEASED, "released")   /* FFN: the batch was released */               \
    _(STEPAF_EVENT_ANSWERED, "answered")   /* attention: one peer's answer is here */      \
    _(STEPAF_EVENT_COMPLETED, "completed") /* attention: the operation is complete */      \
    _(STEPAF_EVENT_WAITED, "waited")       /* attention: a wait for it began */

/** Kind of a trace record. Where all of an operation's pushes are 4 KiB or less, posting takes
 *  little longer than a stamp: start, posted and notified then share the last one's. */
typedef enum stepaf_event {
#define STEPAF_EVENT_ENUM(name_, text_) name_,
    STEPAF_EVENT_MAP(STEPAF_EVENT_ENUM)
#undef STEPAF_EVENT_ENUM
        STEPAF_EVENT_LAST
} stepaf_event_t;

/** One stamp. Times are nanoseconds of the job's common clock: the monotonic clock of world rank
 *  0's node, as estimated at commit over the links. A lane of the mesh without a rank on that node
 *  has no link to it, and the clock of the node of its own first rank. */
typedef struct stepaf_trace_record {
    int64_t time_ns;
    uint32_t sequence; /* of the operation within its plan */
    uint16_t plan;     /* number of the plan at its attention rank */
    uint16_t event;    /* stepaf_event_t */
    int32_t peer;      /* rank within the other role's group; -1: all */
    int32_t tensor;    /* index within the operation; -1: all */
    uint64_t bytes;
} stepaf_trace_record_t;

/** Copy the newest trace records, oldest first.
 *  @param record_size  sizeof(stepaf_trace_record_t): how far apart the records of @a records_p are.
 *  @param capacity     of @a records_p; the ring holds the setting STEPAF_TRACE_RECORDS.
 *  @param n_p          how many were copied.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID. Never blocks. */
STEPAF_API stepaf_status_t stepaf_trace_read(stepaf_context_h ctx, stepaf_trace_record_t *records_p,
                                             size_t record_size, size_t capacity, size_t *n_p);

/** Forget all trace records so far.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE. Never blocks. */
STEPAF_API stepaf_status_t stepaf_trace_clear(stepaf_context_h ctx);

/** Return the words for @a event; "?" for an unknown value. Any thread, cannot fail. */
STEPAF_API const char *stepaf_event_name(stepaf_event_t event);

#ifdef __cplusplus
}
#endif
#endif
