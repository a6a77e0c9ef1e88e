/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of records to events: spans of an operation at its attention rank and of its batch at
 * each FFN rank, and arrows between them. Both ends of an arrow have the same number, although each
 * rank prints its own end. Several operations of a plan may be in flight: each is on the first free
 * track. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "core/trace_file.h"

enum { TRACKS = 64, OF_CONTEXT = 100000, PUSH = 0, ANSWER = 1 };

struct printer {
    const struct stepaf_ctx *ctx;
    FILE *stream;
    bool has_any;
    struct {
        int64_t busy_until;
        uint32_t id;
    } tracks[TRACKS]; /* of one plan, and at an FFN rank of one peer */
    unsigned n_tracks;
    uint32_t n_ids; /* of all tracks so far */
    uint32_t track; /* track of the current operation */
};

/* Times of the events of an operation, or of its part at one peer; -1: no record. */
struct marks {
    int64_t at[STEPAF_EVENT_LAST];
};

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Order by plan and sequence, then by time; at one time as the events follow each other. */
static int compare_by_plan(const void *left, const void *right)
{
    const stepaf_trace_record_t *a = left, *b = right;
    int order = compare_numbers(a->plan, b->plan);

    order = order ? order : compare_numbers(a->sequence, b->sequence);
    order = order ? order : compare_numbers(a->time_ns, b->time_ns);
    return order ? order : compare_numbers(a->event, b->event);
}

/* Order by peer, and within it as compare_by_plan. */
static int compare_by_peer(const void *left, const void *right)
{
    const stepaf_trace_record_t *a = left, *b = right;
    int order = compare_numbers(a->peer, b->peer);

    return order ? order : compare_by_plan(left, right);
}

/* The begin of a record's operation, once tell_apart has found it: kept in a field that is not
 * printed. */
static int64_t begin_of(const stepaf_trace_record_t *record)
{
    return (int64_t)record->bytes;
}

/* Order the operations of a plan by their begin, and within one by peer; records without a peer
 * first. */
static int compare_by_begin(const void *left, const void *right)
{
    const stepaf_trace_record_t *a = left, *b = right;
    int order = compare_numbers(a->plan, b->plan);

    order = order ? order : compare_numbers(begin_of(a), begin_of(b));
    order = order ? order : compare_numbers(a->sequence, b->sequence);
    return order ? order : compare_by_peer(left, right);
}

/* Order by attention rank, and within it as compare_by_begin. */
static int compare_by_peer_and_begin(const void *left, const void *right)
{
    const stepaf_trace_record_t *a = left, *b = right;
    int order = compare_numbers(a->peer, b->peer);

    return order ? order : compare_by_begin(left, right);
}

/* Find the first time of each event. Of "notified" find the last, since each peer has one. */
static struct marks find_marks(const stepaf_trace_record_t *records, size_t n)
{
    struct marks marks;

    for (int e = 0; e < STEPAF_EVENT_LAST; e++)
        marks.at[e] = -1;
    for (size_t i = 0; i < n; i++) {
        if (records[i].event >= STEPAF_EVENT_LAST)
            continue;
        int64_t *at = &marks.at[records[i].event];
        if (*at < 0 || (records[i].event == STEPAF_EVENT_NOTIFIED && records[i].time_ns > *at))
            *at = records[i].time_ns;
    }
    return marks;
}

static FILE *next_event(struct printer *printer)
{
    if (printer->has_any)
        fputs(",\n", printer->stream);
    printer->has_any = true;
    return printer->stream;
}

/* Print microseconds, as the format requires; not by printf, since a locale may use a comma. */
static void print_us(FILE *stream, const char *name, int64_t ns)
{
    fprintf(stream, ",\"%s\":%lld.%03d", name, (long long)(ns / 1000), (int)(ns % 1000));
}

static void print_place(struct printer *printer, const char *phase, const char *name)
{
    fprintf(next_event(printer), "{\"ph\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%u", phase,
            name, printer->ctx->job.boot.rank, printer->track);
}

static void print_span(struct printer *printer, const char *name, int64_t from_ns, int64_t to_ns,
                       const stepaf_trace_record_t *record)
{
    if (from_ns < 0 || to_ns < from_ns)
        return;
    print_place(printer, "X", name);
    print_us(printer->stream, "ts", from_ns);
    print_us(printer->stream, "dur", to_ns - from_ns);
    fprintf(printer->stream, ",\"args\":{\"plan\":%u,\"sequence\":%u}}", (unsigned)record->plan,
            (unsigned)record->sequence);
}

/* Print one end of the arrow between an attention and an FFN rank: "s" at its start, "f" at its
 * end. */
static void print_arrow(struct printer *printer, const char *phase, int way,
                        const stepaf_trace_record_t *record, int64_t time_ns)
{
    uint32_t mine = printer->ctx->job.ranks[printer->ctx->job.boot.rank].rank;
    uint32_t peer = (uint32_t)record->peer;
    bool attends = stepaf_is_attention(printer->ctx);
    uint32_t who[] = {attends ? mine : peer,   attends ? peer : mine,      record->plan,
                      record->sequence,        printer->ctx->trace.number, (uint32_t)way,
                      (uint32_t)record->tensor}; /* see tell_apart */

    if (time_ns < 0)
        return;
    print_place(printer, phase, way == PUSH ? "push" : "answer");
    print_us(printer->stream, "ts", time_ns);
    /* JSON numbers are exact up to 2^53. */
    fprintf(printer->stream, ",\"cat\":\"flow\",\"id\":%llu%s}",
            (unsigned long long)(stepaf_hash(STEPAF_HASH_START, who, sizeof(who)) >> 12),
            *phase == 'f' ? ",\"bp\":\"e\"" : "");
}

static void print_track_name(struct printer *printer, const stepaf_trace_record_t *record,
                             unsigned track)
{
    print_place(printer, "M", "thread_name");
    fputs(",\"args\":{\"name\":\"", printer->stream);
    if (!stepaf_is_attention(printer->ctx))
        fprintf(printer->stream, "attention %d, ", record->peer);
    fprintf(printer->stream, "plan %u", (unsigned)record->plan);
    if (track)
        fprintf(printer->stream, ", %u more in flight", track);
    fputs("\"}}", printer->stream);
}

/* Find a free track for the time from @a from_ns to @a to_ns. */
static void take_track(struct printer *printer, const stepaf_trace_record_t *record,
                       int64_t from_ns, int64_t to_ns)
{
    unsigned track = 0;

    while (track < printer->n_tracks && printer->tracks[track].busy_until > from_ns)
        track++;
    if (track == TRACKS)
        track--;
    bool is_new = track == printer->n_tracks;
    if (is_new) {
        printer->tracks[track].id = printer->ctx->trace.number * OF_CONTEXT + ++printer->n_ids;
        printer->n_tracks++;
    }
    printer->tracks[track].busy_until = to_ns;
    printer->track = printer->tracks[track].id;
    if (is_new)
        print_track_name(printer, record, track);
}

static bool is_begin(const stepaf_trace_record_t *record)
{
    return record->event == STEPAF_EVENT_START || record->event == STEPAF_EVENT_ARRIVED;
}

/* Return how many records belong to the first operation, of @a n in order of time that have its
 * plan and sequence. A wait on a stream may begin before the operation that it waits for.
 * @a begin_p: record of the begin. */
static size_t of_first(const stepaf_trace_record_t *records, size_t n, size_t *begin_p)
{
    bool is_over = false;
    size_t i = 0;

    while (i < n && records[i].event == STEPAF_EVENT_WAITED)
        i++;
    *begin_p = i < n && is_begin(&records[i]) ? i++ : 0;
    for (; i < n && !is_begin(&records[i]); i++) {
        if (is_over && records[i].event == STEPAF_EVENT_WAITED)
            break;
        is_over = is_over || records[i].event == STEPAF_EVENT_COMPLETED;
    }
    return i;
}

/* Tell apart operations with one plan and sequence, whose records are in order of time: a number of
 * a plan is used again, and the new plan's sequence starts anew. Each record gets its operation's
 * begin, and in "tensor" how many newer operations its peer has: an arrow's ends agree on that, also
 * if one rank has joined or has lost records since. */
static void tell_apart(stepaf_trace_record_t *records, size_t n)
{
    for (size_t i = 0, same, begin; i < n; i += same) {
        same = of_first(records + i, n - i, &begin);
        for (size_t k = 0; k < same; k++)
            records[i + k].bytes = (uint64_t)records[i + begin].time_ns;
    }
    qsort(records, n, sizeof(*records), compare_by_peer);
    for (size_t i = n; i-- > 0;) {
        const stepaf_trace_record_t *newer = i + 1 < n ? &records[i + 1] : NULL;
        records[i].tensor = 0;
        if (newer && newer->peer == records[i].peer)
            records[i].tensor = newer->tensor + (begin_of(newer) != begin_of(&records[i]));
    }
}

static size_t of_same_peer(const stepaf_trace_record_t *records, size_t n)
{
    size_t same = 1;

    while (same < n && records[same].peer == records->peer)
        same++;
    return same;
}

/* Print an operation at the attention rank, if it is complete: the ring may have lost its start. */
static void print_operation(struct printer *printer, const stepaf_trace_record_t *records, size_t n)
{
    struct marks op = find_marks(records, n);
    int64_t start_ns = op.at[STEPAF_EVENT_START], end_ns = op.at[STEPAF_EVENT_COMPLETED];
    int64_t sent_ns = op.at[STEPAF_EVENT_NOTIFIED], wait_ns = op.at[STEPAF_EVENT_WAITED];

    if (start_ns < 0 || end_ns < start_ns)
        return;
    take_track(printer, records, start_ns, end_ns);
    print_span(printer, "operation", start_ns, end_ns, records);
    if (sent_ns > end_ns)
        sent_ns = end_ns;
    print_span(printer, "push", start_ns, sent_ns, records);
    if (wait_ns >= 0)
        print_span(printer, "wait", wait_ns > sent_ns ? wait_ns : sent_ns, end_ns, records);
    for (size_t i = 0, same; i < n; i += same) {
        same = of_same_peer(records + i, n - i);
        if (records[i].peer < 0)
            continue;
        int64_t answered_ns = find_marks(records + i, same).at[STEPAF_EVENT_ANSWERED];
        print_arrow(printer, "s", PUSH, records + i, start_ns);
        print_arrow(printer, "f", ANSWER, records + i, answered_ns < end_ns ? answered_ns : end_ns);
    }
}

/* Print a batch at an FFN rank. An arrow begins a moment before the span's end, where viewers find
 * the span. */
static void print_batch(struct printer *printer, const stepaf_trace_record_t *records, size_t n)
{
    struct marks batch = find_marks(records, n);
    int64_t arrived_ns = batch.at[STEPAF_EVENT_ARRIVED],
            handled_ns = batch.at[STEPAF_EVENT_HANDLED];
    int64_t end_ns = batch.at[STEPAF_EVENT_RESPONDED];

    if (end_ns < 0)
        end_ns = batch.at[STEPAF_EVENT_RELEASED];
    if (arrived_ns < 0 || handled_ns < arrived_ns || end_ns < handled_ns || records->peer < 0)
        return;
    take_track(printer, records, arrived_ns, end_ns);
    print_span(printer, "queue", arrived_ns, handled_ns, records);
    print_span(printer, "batch", handled_ns, end_ns, records);
    print_arrow(printer, "f", PUSH, records, handled_ns);
    print_arrow(printer, "s", ANSWER, records, end_ns > handled_ns ? end_ns - 1 : end_ns);
}

static void name_process(struct printer *printer)
{
    const struct stepaf_ctx *ctx = printer->ctx;
    bool attends = stepaf_is_attention(ctx);

    print_place(printer, "M", "process_name");
    fprintf(printer->stream, ",\"args\":{\"name\":\"%s %u (world rank %d, ",
            attends ? "attention" : "FFN", (unsigned)ctx->job.ranks[ctx->job.boot.rank].rank,
            ctx->job.boot.rank);
    for (const char *c = ctx->job.topo.host; *c; c++) {
        if (*c >= ' ' && *c <= '~' && *c != '"' && *c != '\\')
            fputc(*c, printer->stream);
    }
    fprintf(printer->stream, ", pid %d)\"}}", (int)getpid());
}

/* Return whether two records have one plan and sequence, and one peer if @a by_peer. */
static bool is_same_sequence(const stepaf_trace_record_t *a, const stepaf_trace_record_t *b,
                             bool by_peer)
{
    return a->plan == b->plan && a->sequence == b->sequence && (!by_peer || a->peer == b->peer);
}

void stepaf_trace_events_print(const struct stepaf_ctx *ctx, stepaf_trace_record_t *records,
                               size_t n, FILE *stream)
{
    struct printer printer = {.ctx = ctx, .stream = stream};
    bool attends = stepaf_is_attention(ctx);

    name_process(&printer);
    if (!n)
        return;
    qsort(records, n, sizeof(*records), attends ? compare_by_plan : compare_by_peer);
    for (size_t i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n && is_same_sequence(&records[i], &records[i + same], !attends);)
            same++;
        tell_apart(records + i, same);
    }
    qsort(records, n, sizeof(*records), attends ? compare_by_begin : compare_by_peer_and_begin);
    for (size_t i = 0, same; i < n; i += same) {
        const stepaf_trace_record_t *first = &records[i];

        for (same = 1; i + same < n && begin_of(&first[same]) == begin_of(first) &&
                       is_same_sequence(first, &first[same], !attends);)
            same++;
        if (!i || first[-1].plan != first->plan || (!attends && first[-1].peer != first->peer))
            printer.n_tracks = 0;
        if (attends)
            print_operation(&printer, first, same);
        else
            print_batch(&printer, first, same);
    }
}
