/* SPDX-License-Identifier: Apache-2.0 */
/* Counters: totals of what a context has done. */
#ifndef STEPAF_COUNTERS_H
#define STEPAF_COUNTERS_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** All counters: field and text. New ones are appended. */
#define STEPAF_COUNTER_MAP(_)                                                 \
    _(operations_started, "operations started")                               \
    _(operations_completed, "operations completed")                           \
    _(operations_failed, "operations failed or canceled")                     \
    _(batches_received, "batches received")                                   \
    _(responses_sent, "responses sent")                                       \
    _(bytes_sent, "tensor bytes sent")                                        \
    _(bytes_received, "tensor bytes received")                                \
    _(would_block, "starts rejected because no slot was free")                \
    _(queued, "posts that waited for room in a transport's queue")            \
    _(dropped_malformed, "notifications dropped: malformed")                  \
    _(dropped_stale, "notifications dropped: of an older epoch or operation") \
    _(late, "answers that came after the operation was over")                 \
    _(peers_lost, "peers lost")                                               \
    _(yields, "times a waiting thread gave up its core")                      \
    _(incomplete, "operations completed before all had answered")             \
    _(left_out, "times that a late FFN rank was left out of an operation")    \
    _(thread_busy_ns, "ns that the library's thread spent in polls that found work")

/** Totals since the context was created. With STEPAF_STREAM_TIMES=on, operations on streams, their
 *  batches and their answers are counted; the bytes that they move from GPU to GPU are not. What
 *  the library moves through the host for them is always counted, as operations of the library's
 *  own plans; see stepaf_stream(7). */
typedef struct stepaf_counters {
    size_t size; /* in: sizeof(stepaf_counters_t) */
#define STEPAF_COUNTER_FIELD(name_, text_) uint64_t name_;
    STEPAF_COUNTER_MAP(STEPAF_COUNTER_FIELD)
#undef STEPAF_COUNTER_FIELD
} stepaf_counters_t;

/** Read the counters of @a ctx.
 *  @param counters_p  filled; the caller sets its size field.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (@a counters_p is NULL, or its size is
 *  too small).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_counters_query(stepaf_context_h ctx,
                                                 stepaf_counters_t *counters_p);

#ifdef __cplusplus
}
#endif
#endif
