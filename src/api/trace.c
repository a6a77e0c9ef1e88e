/* SPDX-License-Identifier: Apache-2.0 */
#include "api/handles.h"

static int64_t common_ns(const struct stepaf_ctx *ctx, uint64_t ticks)
{
    return stepaf_clock_to_ns(&ctx->clock, ticks) + ctx->clock_offset_ns;
}

/* How many records of one kind an entry is. */
static size_t each_of(const struct stepaf_ctx *ctx, const struct stepaf_trace_entry *entry)
{
    return entry->peer == STEPAF_TRACE_EACH ? ctx->n_peers : 1;
}

/* And all in all. */
static size_t records_of(const struct stepaf_ctx *ctx, const struct stepaf_trace_entry *entry)
{
    size_t each = each_of(ctx, entry);

    return each + !!(entry->event & STEPAF_TRACE_STARTED) +
           (entry->event & STEPAF_TRACE_NOTIFIED ? each : 0) +
           !!(entry->event & STEPAF_TRACE_COMPLETED);
}

static void write_record(const struct stepaf_ctx *ctx, const struct stepaf_trace_entry *entry,
                         size_t index, stepaf_trace_record_t *record_p)
{
    size_t each = each_of(ctx, entry), before = !!(entry->event & STEPAF_TRACE_STARTED);
    stepaf_trace_record_t record = {
        .time_ns = common_ns(ctx, entry->ticks),
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
        record.event =
            entry->event & STEPAF_TRACE_NOTIFIED ? STEPAF_EVENT_NOTIFIED : STEPAF_EVENT_COMPLETED;
    }
    if (entry->peer == STEPAF_TRACE_EACH && index >= before)
        record.peer = ctx->peers[(index - before) % each].who.rank;
    else if (entry->peer != STEPAF_TRACE_ALL && record.event != STEPAF_EVENT_START &&
             record.event != STEPAF_EVENT_COMPLETED)
        record.peer = entry->peer;
    *record_p = record;
}

/* Copy the newest @a capacity records, or as many as there are; return how many. */
static size_t read_ring(const struct stepaf_ctx *ctx, stepaf_trace_record_t *records_p,
                        size_t capacity)
{
    const struct stepaf_trace *trace = &ctx->trace;
    uint64_t kept = trace->head - trace->tail, at = trace->head;
    size_t found = 0, n = 0;

    if (kept > trace->mask + 1)
        kept = trace->mask + 1;
    for (; at != trace->head - kept && found < capacity; at--)
        found += records_of(ctx, &trace->ring[(at - 1) & trace->mask]);
    size_t skip = found > capacity ? found - capacity : 0; /* the oldest entry has more */
    for (; at != trace->head; at++) {
        const struct stepaf_trace_entry *entry = &trace->ring[at & trace->mask];
        for (size_t i = skip; i < records_of(ctx, entry); i++)
            write_record(ctx, entry, i, &records_p[n++]);
        skip = 0;
    }
    return n;
}

stepaf_status_t stepaf_trace_read(stepaf_context_h handle, stepaf_trace_record_t *records_p,
                                  size_t capacity, size_t *n_p)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    const struct stepaf_trace *trace = &ctx->trace;
    if (!n_p || (capacity && !records_p)) {
        status =
            stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "records_p or n_p is NULL");
        goto out;
    }
    if (capacity > trace->mask + 1)
        capacity = trace->mask + 1;
    *n_p = trace->ring ? read_ring(ctx, records_p, capacity) : 0;
out:
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_trace_clear(stepaf_context_h handle)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    ctx->trace.tail = ctx->trace.head;
    stepaf_leave(ctx);
    return STEPAF_OK;
}

static int64_t since(const struct stepaf_ctx *ctx, uint64_t from, uint64_t to)
{
    return (int64_t)((double)(int64_t)(to - from) * ctx->clock.ns_per_tick);
}

stepaf_status_t stepaf_timeline_query(stepaf_request_h request, int ffn_rank,
                                      stepaf_timeline_t *timeline_p)
{
    struct stepaf_op *op;
    stepaf_status_t status = stepaf_enter_op(request, &op);

    if (status)
        return status;
    struct stepaf_ctx *ctx = op->plan->ctx;
    int p = stepaf_find_peer(ctx, ffn_rank);
    if (p < 0 || !timeline_p) {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                  "FFN rank %d is none of this rank's peers, or timeline_p is NULL",
                                  ffn_rank);
    } else {
        const struct stepaf_part *part = &op->parts[p];
        bool over = part->state == STEPAF_PART_ANSWERED || part->state == STEPAF_PART_CANCELED;
        bool sent = over || part->state == STEPAF_PART_WAITING;
        *timeline_p = (stepaf_timeline_t){
            .start_ns = common_ns(ctx, op->started),
            .notified_ns = sent ? since(ctx, op->started, op->notified) : -1,
            .answered_ns = over ? since(ctx, op->started, part->answered) : -1,
            .ffn_queue_ns = over && part->queue_ns != UINT32_MAX ? (int64_t)part->queue_ns : -1,
            .ffn_work_ns = over && part->work_ns != UINT32_MAX ? (int64_t)part->work_ns : -1,
        };
    }
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_counters_query(stepaf_context_h handle, stepaf_counters_t *counters_p)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    if (counters_p) {
        *counters_p = stepaf_engine_counters(ctx);
    } else {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "counters_p is NULL");
    }
    stepaf_leave(ctx);
    return status;
}

static void count_key(const struct stepaf_ctx *ctx, const struct stepaf_key *key,
                      stepaf_memory_use_t *use)
{
    use->declared += sizeof(*key);
    if (key->remote)
        use->per_key += ctx->n_peers * sizeof(key->remote[0]);
    for (struct stepaf_list *node = key->segments.next; node != &key->segments; node = node->next) {
        const struct stepaf_segment *segment =
            stepaf_container_of(node, struct stepaf_segment, node);
        use->declared += sizeof(*segment) + segment->n_ranks * sizeof(segment->ranks[0]);
        if (segment->library)
            use->receive += segment->n_ranks * segment->stride;
    }
}

/* Attention: memory of plans, on all peers. */
static void count_plans(const struct stepaf_ctx *ctx, stepaf_memory_use_t *use)
{
    for (uint32_t i = 0; i < ctx->plans.n; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->plans, i);
        if (!plan)
            continue;
        size_t per_peer = sizeof(plan->skipped[0]) + sizeof(plan->posts[0]) +
                          plan->n_pull * sizeof(plan->pull[0]) +
                          plan->depth * (sizeof(struct stepaf_part) + sizeof(struct stepaf_post *) +
                                         plan->n_push * sizeof(struct stepaf_xfer) +
                                         plan->n_pull * sizeof(uint32_t));
        use->declared +=
            sizeof(*plan) + plan->depth * (sizeof(struct stepaf_op) + plan->ops[0].template_bytes);
        use->per_key += ctx->n_peers * per_peer;
        use->key_peers += (size_t)(plan->n_push + plan->n_pull) * plan->depth * ctx->n_peers;
    }
}

/* FFN: the same for what attention ranks have told. */
static void count_mirrors(const struct stepaf_ctx *ctx, stepaf_memory_use_t *use)
{
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        for (uint32_t i = 0; i < ctx->peers[p].n_mirrors; i++) {
            const struct stepaf_mirror *mirror = ctx->peers[p].mirrors[i];
            if (!mirror)
                continue;
            use->per_key += sizeof(*mirror) + sizeof(ctx->peers[p].mirrors[0]) +
                            mirror->n_push * sizeof(mirror->push[0]) +
                            mirror->n_pull * sizeof(mirror->pull[0]) +
                            mirror->depth * (sizeof(struct stepaf_batch_obj) +
                                             mirror->n_pull * sizeof(struct stepaf_xfer) +
                                             mirror->n_push * sizeof(uint32_t));
            use->key_peers += (size_t)(mirror->n_push + mirror->n_pull) * mirror->depth;
        }
}

stepaf_status_t stepaf_memory_query(stepaf_context_h handle, stepaf_memory_use_t *use_p)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    if (!use_p) {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "use_p is NULL");
        goto out;
    }
    *use_p = (stepaf_memory_use_t){
        .fixed = sizeof(*ctx) + (size_t)ctx->boot.size * (sizeof(ctx->ranks[0]) + 3 * sizeof(int)),
        .per_peer = sizeof(struct stepaf_peer),
        .peers = ctx->n_peers,
    };
    if (ctx->trace.ring)
        use_p->fixed += (ctx->trace.mask + 1) * sizeof(ctx->trace.ring[0]);
    for (unsigned t = 0; t < ctx->n_transports; t++) {
        size_t per_link, staging;
        ctx->transports[t]->ops->query_memory(ctx->transports[t], &per_link, &staging);
        use_p->per_peer += per_link;
        use_p->staging += staging;
    }
    for (uint32_t i = 0; i < ctx->n_keys; i++)
        count_key(ctx, ctx->keys[i], use_p);
    for (const struct stepaf_key *key = ctx->withdrawn; key; key = key->next)
        count_key(ctx, key, use_p);
    count_plans(ctx, use_p);
    count_mirrors(ctx, use_p);
out:
    stepaf_leave(ctx);
    return status;
}

const char *stepaf_transport_name(stepaf_context_h handle, int rank)
{
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    int p = ctx ? stepaf_find_peer(ctx, rank) : -1;

    if (p < 0)
        return NULL;
    return ctx->peers[p].link ? ctx->peers[p].link->name : "-";
}

int64_t stepaf_clock_ns(stepaf_context_h handle)
{
    const struct stepaf_ctx *ctx = stepaf_handle_ctx(handle, STEPAF_HANDLE_CONTEXT);

    return ctx ? common_ns(ctx, stepaf_ticks()) : 0;
}
