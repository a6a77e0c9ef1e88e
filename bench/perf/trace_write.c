/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of records to events: records are sorted so that those of one operation and FFN
 * rank are adjacent, and each such group becomes spans and arrows. */
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "trace.h"

/* A record with its place in the job. */
struct mark {
    uint32_t attn, plan, sequence;
    int32_t ffn; /* -1: the operation as a whole */
    uint16_t event;
    int64_t time_ns;
    uint64_t bytes;
};

/* The times of an operation, or of its part at one FFN rank; -1 without a record. */
struct span {
    int64_t at[STEPAF_EVENT_LAST];
    uint64_t bytes; /* pushed */
};

struct writer {
    struct perf_trace *trace;
    unsigned microbatches, depth;
    const int *attn_world, *ffn_world;
};

static int compare(const void *left, const void *right)
{
    const struct mark *a = left;
    const struct mark *b = right;

    if (a->attn != b->attn)
        return a->attn < b->attn ? -1 : 1;
    if (a->plan != b->plan)
        return a->plan < b->plan ? -1 : 1;
    if (a->sequence != b->sequence)
        return a->sequence < b->sequence ? -1 : 1;
    if (a->ffn != b->ffn)
        return a->ffn < b->ffn ? -1 : 1;
    return (a->time_ns > b->time_ns) - (a->time_ns < b->time_ns);
}

/* Write a comma and newline before each event but the first. */
static FILE *next_event(struct perf_trace *trace)
{
    fputs(trace->n_events++ > 0 ? ",\n" : "\n", trace->file);
    return trace->file;
}

static double us_of(const struct writer *writer, int64_t time_ns)
{
    return (double)(time_ns - writer->trace->base_ns) / 1e3;
}

/* Tracks within a process: buffers of one plan may be in use at the same time, so that each is a
 * track; at an FFN rank each attention rank has its own. */
static uint64_t track_of(const struct writer *writer, const struct mark *m, int at_ffn)
{
    uint64_t track = (uint64_t)m->plan * writer->depth + m->sequence % writer->depth + 1;

    return at_ffn ? track + ((uint64_t)m->attn + 1) * 100000 : track;
}

static void write_span(struct writer *writer, const char *name, int pid, uint64_t tid,
                       int64_t from_ns, int64_t to_ns, const struct mark *m, uint64_t bytes)
{
    if (from_ns < 0 || to_ns < 0)
        return;
    if (to_ns < from_ns)
        to_ns = from_ns;
    fprintf(next_event(writer->trace),
            "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%llu,\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"attention\":%u,\"plan\":%u,\"sequence\":%u,\"bytes\":%llu}}",
            name, pid, (unsigned long long)tid, us_of(writer, from_ns),
            (double)(to_ns - from_ns) / 1e3, m->attn, m->plan, m->sequence,
            (unsigned long long)bytes);
}

static void write_arrow(struct writer *writer, const char *name, int from_pid, uint64_t from_tid,
                        int64_t from_ns, int to_pid, uint64_t to_tid, int64_t to_ns)
{
    unsigned long long id = ++writer->trace->n_flows;

    if (from_ns < 0 || to_ns < 0)
        return;
    fprintf(next_event(writer->trace),
            "{\"ph\":\"s\",\"cat\":\"flow\",\"name\":\"%s\",\"id\":%llu,\"pid\":%d,\"tid\":%llu,"
            "\"ts\":%.3f}",
            name, id, from_pid, (unsigned long long)from_tid, us_of(writer, from_ns));
    fprintf(next_event(writer->trace),
            "{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"flow\",\"name\":\"%s\",\"id\":%llu,\"pid\":%d,"
            "\"tid\":%llu,\"ts\":%.3f}",
            name, id, to_pid, (unsigned long long)to_tid, us_of(writer, to_ns));
}

/* A process or track name. */
static void write_name(struct writer *writer, const char *what, int pid, uint64_t tid,
                       const char *name)
{
    fprintf(next_event(writer->trace),
            "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%llu,\"args\":{\"name\":\"%s\"}}",
            what, pid, (unsigned long long)tid, name);
}

static void name_tracks(struct writer *writer, struct mark m)
{
    char name[96];

    for (unsigned slot = 0; slot < writer->depth; slot++) {
        char buffer[32] = "";

        m.sequence = slot;
        if (writer->depth > 1)
            snprintf(buffer, sizeof(buffer), ", buffer %u", slot);
        if (m.ffn < 0) {
            snprintf(name, sizeof(name), "microbatch %u (plan %u)%s", m.plan % writer->microbatches,
                     m.plan, buffer);
            write_name(writer, "thread_name", writer->attn_world[m.attn], track_of(writer, &m, 0),
                       name);
            continue;
        }
        snprintf(name, sizeof(name), "attention %u, microbatch %u (plan %u)%s", m.attn,
                 m.plan % writer->microbatches, m.plan, buffer);
        write_name(writer, "thread_name", writer->ffn_world[m.ffn], track_of(writer, &m, 1), name);
    }
}

/* Keep the first time of each event; of "notified" the last, as there is one for each FFN rank. */
static struct span span_of(const struct mark *marks, size_t n)
{
    struct span span = {.bytes = 0};

    for (int e = 0; e < STEPAF_EVENT_LAST; e++)
        span.at[e] = -1;
    for (size_t i = 0; i < n; i++) {
        int64_t *at = &span.at[marks[i].event];

        if (*at < 0 || (marks[i].event == STEPAF_EVENT_NOTIFIED && marks[i].time_ns > *at))
            *at = marks[i].time_ns;
        if (marks[i].event == STEPAF_EVENT_POSTED)
            span.bytes += marks[i].bytes;
    }
    return span;
}

/* Write an operation's own spans, at its attention rank. */
static void write_operation(struct writer *writer, const struct mark *marks, size_t n)
{
    struct span span = span_of(marks, n);
    int pid = writer->attn_world[marks->attn];
    uint64_t tid = track_of(writer, marks, 0);
    int64_t wait_ns = span.at[STEPAF_EVENT_WAITED];

    if (span.at[STEPAF_EVENT_START] < 0 || span.at[STEPAF_EVENT_COMPLETED] < 0)
        return; /* the ring has lost its beginning, or it has not ended */
    write_span(writer, "operation", pid, tid, span.at[STEPAF_EVENT_START],
               span.at[STEPAF_EVENT_COMPLETED], marks, span.bytes);
    write_span(writer, "push", pid, tid, span.at[STEPAF_EVENT_START],
               span.at[STEPAF_EVENT_NOTIFIED], marks, span.bytes);
    if (wait_ns >= 0 && wait_ns < span.at[STEPAF_EVENT_NOTIFIED])
        wait_ns = span.at[STEPAF_EVENT_NOTIFIED];
    if (wait_ns <= span.at[STEPAF_EVENT_COMPLETED])
        write_span(writer, "wait", pid, tid, wait_ns, span.at[STEPAF_EVENT_COMPLETED], marks, 0);
}

/* Write its part at one FFN rank, and the arrows there and back. Arrows end where a span begins
 * and begin just before one ends, as viewers bind them to the span that is open at that time. */
static void write_part(struct writer *writer, const struct mark *marks, size_t n,
                       const struct span *operation)
{
    struct span span = span_of(marks, n);
    int pid = writer->ffn_world[marks->ffn];
    int attn_pid = writer->attn_world[marks->attn];
    uint64_t tid = track_of(writer, marks, 1);
    uint64_t attn_tid = track_of(writer, marks, 0);
    int64_t handled_ns = span.at[STEPAF_EVENT_HANDLED];
    int64_t end_ns = span.at[STEPAF_EVENT_RESPONDED];

    if (end_ns < 0)
        end_ns = span.at[STEPAF_EVENT_RELEASED];
    if (handled_ns < 0 || end_ns < 0)
        return;
    write_span(writer, "queue", pid, tid, span.at[STEPAF_EVENT_ARRIVED], handled_ns, marks, 0);
    write_span(writer, "batch", pid, tid, handled_ns, end_ns, marks, 0);
    if (operation->at[STEPAF_EVENT_START] < 0 || operation->at[STEPAF_EVENT_COMPLETED] < 0)
        return;
    write_arrow(writer, "push", attn_pid, attn_tid, operation->at[STEPAF_EVENT_START], pid, tid,
                handled_ns);
    if (span.at[STEPAF_EVENT_ANSWERED] > operation->at[STEPAF_EVENT_COMPLETED])
        span.at[STEPAF_EVENT_ANSWERED] = operation->at[STEPAF_EVENT_COMPLETED];
    write_arrow(writer, "answer", pid, tid, end_ns > handled_ns ? end_ns - 1 : end_ns, attn_pid,
                attn_tid, span.at[STEPAF_EVENT_ANSWERED]);
}

static int same_operation(const struct mark *a, const struct mark *b)
{
    return a->attn == b->attn && a->plan == b->plan && a->sequence == b->sequence;
}

/* Process all marks of one operation: as a whole first, then by FFN rank. */
static void write_group(struct writer *writer, const struct mark *marks, size_t n)
{
    struct span operation = span_of(marks, n);
    size_t i = 0;

    write_operation(writer, marks, n);
    while (i < n) {
        size_t from = i;

        while (i < n && marks[i].ffn == marks[from].ffn)
            i++;
        if (marks[from].ffn >= 0)
            write_part(writer, marks + from, i - from, &operation);
    }
}

static void write_marks(struct writer *writer, const struct mark *marks, size_t n)
{
    size_t i = 0;

    while (i < n) {
        size_t from = i;

        while (i < n && same_operation(&marks[i], &marks[from])) {
            int first_of_part = i == from || marks[i].ffn != marks[i - 1].ffn;
            int first_of_plan = from == 0 || marks[from - 1].attn != marks[from].attn ||
                                marks[from - 1].plan != marks[from].plan;

            if (first_of_plan && first_of_part)
                name_tracks(writer, marks[i]);
            i++;
        }
        write_group(writer, marks + from, i - from);
    }
}

/* Records that make no sense are dropped: they come from other processes. */
static size_t collect(const struct perf_trace_source *sources, int n_sources, int attn, int ffn,
                      struct mark *marks)
{
    size_t n = 0;

    for (int s = 0; s < n_sources; s++) {
        int attention = sources[s].rank->role == STEPAF_ATTENTION;

        for (size_t i = 0; i < sources[s].n; i++) {
            const stepaf_trace_record_t *record = &sources[s].records[i];
            int peers = attention ? ffn : attn;
            int32_t peer = record->peer;

            if (record->event >= STEPAF_EVENT_LAST || peer >= peers || (peer < 0 && !attention))
                continue;
            marks[n++] =
                (struct mark){.attn = (uint32_t)(attention ? sources[s].rank->index : peer),
                              .ffn = attention ? (peer < 0 ? -1 : peer) : sources[s].rank->index,
                              .plan = record->plan,
                              .sequence = record->sequence,
                              .event = record->event,
                              .time_ns = record->time_ns,
                              .bytes = record->bytes};
        }
    }
    return n;
}

static void name_ranks(struct writer *writer, const struct perf_trace_source *sources,
                       int n_sources)
{
    char name[160];

    for (int s = 0; s < n_sources; s++) {
        const struct perf_rank *rank = sources[s].rank;

        /* Host names contain no characters that JSON would escape. */
        snprintf(name, sizeof(name), "%s %d (rank %d, %s, pid %d)",
                 rank->role == STEPAF_ATTENTION ? "attention" : "ffn", rank->index,
                 sources[s].world_rank, rank->host, rank->pid);
        write_name(writer, "process_name", sources[s].world_rank, 0, name);
    }
}

int perf_trace_write(struct perf_trace *trace, const struct perf_trace_source *sources,
                     int n_sources, unsigned microbatches, unsigned depth)
{
    struct writer writer = {.trace = trace, .microbatches = microbatches, .depth = depth};
    int *worlds = calloc(2 * (size_t)n_sources, sizeof(*worlds));
    struct mark *marks = NULL;
    int attn = 0;
    int ffn = 0;
    size_t n = 0;

    for (int s = 0; s < n_sources; s++)
        n += sources[s].n;
    marks = malloc((n + 1) * sizeof(*marks));
    if (worlds == NULL || marks == NULL) {
        free(worlds);
        free(marks);
        return perf_fail("out of memory: %zu trace records", n);
    }
    for (int s = 0; s < n_sources; s++) {
        int attention = sources[s].rank->role == STEPAF_ATTENTION;

        worlds[(attention ? 0 : n_sources) + sources[s].rank->index] = sources[s].world_rank;
        attn += attention;
        ffn += !attention;
    }
    writer.attn_world = worlds;
    writer.ffn_world = worlds + n_sources;
    n = collect(sources, n_sources, attn, ffn, marks);
    qsort(marks, n, sizeof(*marks), compare);
    for (size_t i = 0; i < n; i++) {
        if (trace->base_ns == 0 || (trace->n_events == 0 && marks[i].time_ns < trace->base_ns))
            trace->base_ns = marks[i].time_ns;
    }
    name_ranks(&writer, sources, n_sources);
    write_marks(&writer, marks, n);
    free(marks);
    free(worlds);
    return ferror(trace->file) ? perf_fail("%s: could not be written", trace->name) : 0;
}
