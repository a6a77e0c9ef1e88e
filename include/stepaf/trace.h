/* SPDX-License-Identifier: Apache-2.0 */
/* Traces and counters: where the time of an operation went, and what the context has done. */
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

/** Where one operation's time went at one FFN rank, nanoseconds since its start; -1 if it has
 *  not come to that, and for the FFN side's spans also where the transport does not carry them. */
typedef struct stepaf_timeline {
    int64_t start_ns;     /* on the common clock */
    int64_t notified_ns;  /* pushed and the peer told */
    int64_t answered_ns;  /* its answer arrived here */
    int64_t ffn_queue_ns; /* duration: arrived there until given to the caller */
    int64_t ffn_work_ns;  /* duration: given to the caller until answered */
} stepaf_timeline_t;

#define STEPAF_COUNTER_MAP(_)                                                 \
    _(operations_started, "operations started")                               \
    _(operations_completed, "operations completed")                           \
    _(operations_failed, "operations failed or canceled")                     \
    _(batches_received, "batches received")                                   \
    _(responses_sent, "responses sent")                                       \
    _(bytes_sent, "tensor bytes sent")                                        \
    _(bytes_received, "tensor bytes received")                                \
    _(would_block, "starts refused for want of a free slot")                  \
    _(queued, "posts that waited for room in a transport's queue")            \
    _(dropped_malformed, "notifications dropped: malformed")                  \
    _(dropped_stale, "notifications dropped: of an older epoch or operation") \
    _(late, "answers that came after the operation was canceled or failed")   \
    _(peers_lost, "peers lost")                                               \
    _(yields, "times a waiting thread gave up its core")

/** Totals since the context was made. */
typedef struct stepaf_counters {
#define STEPAF_COUNTER_FIELD(name_, text_) uint64_t name_;
    STEPAF_COUNTER_MAP(STEPAF_COUNTER_FIELD)
#undef STEPAF_COUNTER_FIELD
} stepaf_counters_t;

/** Library memory beyond the caller's tensors, bytes: fixed + declared + peers * per_peer +
 *  per_key, and staging. */
typedef struct stepaf_memory_use {
    size_t fixed;     /* context, settings, trace ring */
    size_t declared;  /* what each key and plan takes once, however many peers there are */
    size_t per_peer;  /* for each rank of the other role */
    size_t peers;     /* how many those are, in this rank's mesh */
    size_t per_key;   /* what plans take for their tensors at each peer and slot, all together */
    size_t key_peers; /* how many (tensor, peer, slot) those are */
    size_t receive;   /* library-allocated receive buffers: the callers' tensors */
    size_t staging;   /* only where a peer's pages can be reached by no direct copy */
} stepaf_memory_use_t;

/** Copy the newest trace records, oldest first.
 *  @param capacity  of @a records_p; the ring holds the setting STEPAF_TRACE_RECORDS.
 *  @param n_p       how many were copied.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID. Never blocks. */
STEPAF_API stepaf_status_t stepaf_trace_read(stepaf_context_h ctx, stepaf_trace_record_t *records_p,
                                             size_t capacity, size_t *n_p);

/** Forget all trace records so far.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE. Never blocks. */
STEPAF_API stepaf_status_t stepaf_trace_clear(stepaf_context_h ctx);

/** Say where the time of an operation went at one FFN rank.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (rank, or none of its peers). Valid until the slot is
 *  started again. Never blocks. */
STEPAF_API stepaf_status_t stepaf_timeline_query(stepaf_request_h request, int ffn_rank,
                                                 stepaf_timeline_t *timeline_p);

/** Read the counters.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID. Never blocks. */
STEPAF_API stepaf_status_t stepaf_counters_query(stepaf_context_h ctx,
                                                 stepaf_counters_t *counters_p);

/** Say what memory the context uses. After commit.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID. Never blocks. */
STEPAF_API stepaf_status_t stepaf_memory_query(stepaf_context_h ctx, stepaf_memory_use_t *use_p);

/** Return the name of the transport that reaches rank @a rank of the other role ("shm"), with the
 *  way it writes into registered (not stepaf_alloc-ed) memory after a semicolon ("shm;cma"); "-"
 *  before commit; NULL for an invalid argument and for a rank that this one
 *  does not talk to. Valid until finalize. Never blocks. */
STEPAF_API const char *stepaf_transport_name(stepaf_context_h ctx, int rank);

/** Return the words for @a event; "?" for an unknown value. Any thread, cannot fail. */
STEPAF_API const char *stepaf_event_name(stepaf_event_t event);

/** Return the current time of the common clock, ns; 0 for an invalid handle. Never blocks. */
STEPAF_API int64_t stepaf_clock_ns(stepaf_context_h ctx);

#ifdef __cplusplus
}
#endif
#endif
