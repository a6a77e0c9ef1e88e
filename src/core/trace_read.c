/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of trace entries to the caller's records. */
#include "core/trace_read.h"

#include <string.h>

#include "core/clock_keep.h"

/* Return the number of records of one kind that an entry stands for. */
static size_t each_of(const struct stepaf_ctx *ctx, const struct stepaf_trace_entry *entry)
{
    return entry->peer == STEPAF_TRACE_EACH ? ctx->n_peers : 1;
}

/* Return the number of records of all kinds. */
static size_t records_of(const struct stepaf_ctx *ctx, const struct stepaf_trace_entry *entry)
{
    size_t each = each_of(ctx, entry);

    return each + !!(entry->event & STEPAF_TRACE_STARTED) +
           (entry->event & STEPAF_TRACE_NOTIFIED ? each : 0) +
           !!(entry->event & STEPAF_TRACE_COMPLETED);
}

/* Return the event that is stamped with an entry, after its own event. */
static int event_behind(const struct stepaf_trace_entry *entry)
{
    if (!(entry->event & STEPAF_TRACE_NOTIFIED))
        return STEPAF_EVENT_COMPLETED;
    return (entry->event & STEPAF_TRACE_EVENT) == STEPAF_EVENT_RESPONDED ? STEPAF_EVENT_RELEASED
                                                                         : STEPAF_EVENT_NOTIFIED;
}

static stepaf_trace_record_t record_of(const struct stepaf_ctx *ctx,
                                       const struct stepaf_trace_entry *entry, size_t index)
{
    size_t each = each_of(ctx, entry), before = !!(entry->event & STEPAF_TRACE_STARTED);
    stepaf_trace_record_t record = {
        .time_ns = stepaf_clock_common_ns(ctx, entry->ticks),
        .sequence = entry->seq,
        .plan = entry->plan,
        .peer = -1,
        .tensor = -1,
    };

    if (index < before) {
        record.event = STEPAF_EVENT_START;
    } else if (index - before < each) {
        record.event = entry->event & STEPAF_TRACE_EVENT;
        record.tensor = entry->tensor == STEPAF_TRACE_WHOLE ? -1 : entry->tensor;
        record.bytes = entry->bytes;
    } else {
        record.event = event_behind(entry);
    }
    if (entry->peer == STEPAF_TRACE_EACH && index >= before)
        record.peer = ctx->peers[(index - before) % each].who.rank;
    else if (entry->peer != STEPAF_TRACE_ALL && record.event != STEPAF_EVENT_START &&
             record.event != STEPAF_EVENT_COMPLETED)
        record.peer = entry->peer;
    return record;
}

size_t stepaf_trace_copy(const struct stepaf_ctx *ctx, void *records_p, size_t record_size,
                         size_t capacity)
{
    size_t bytes =
        record_size < sizeof(stepaf_trace_record_t) ? record_size : sizeof(stepaf_trace_record_t);
    const struct stepaf_trace *trace = &ctx->trace;
    if (!trace->next)
        return 0;
    if (capacity > stepaf_trace_size(trace))
        capacity = stepaf_trace_size(trace);
    uint64_t head = stepaf_trace_head(trace), at = head;
    uint64_t from = head - stepaf_trace_kept(trace, UINT64_MAX);
    size_t found = 0, n = 0;

    for (; at != from && found < capacity; at--)
        found += records_of(ctx, stepaf_trace_entry(trace, at - 1));
    size_t skip = found > capacity ? found - capacity : 0; /* excess records of the oldest entry */
    for (; at != head; at++) {
        const struct stepaf_trace_entry *entry = stepaf_trace_entry(trace, at);
        for (size_t i = skip; i < records_of(ctx, entry); i++) {
            stepaf_trace_record_t record = record_of(ctx, entry, i);
            memcpy((char *)records_p + n++ * record_size, &record, bytes);
        }
        skip = 0;
    }
    return n;
}
