/* SPDX-License-Identifier: Apache-2.0 */
#include "trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS_MAX = 1 << 16 };

/* Lanes of a rank in the display. */
enum { LANE_WORK, LANE_WAIT, LANE_EXCHANGES, LANE_LIBRARY = 100 };

struct head {
    struct place place;
    uint64_t n_spans;
    uint64_t n_records;
};

/* One rank's parsed part. */
struct part {
    struct head head;
    struct span *spans;
    stepaf_trace_record_t *records;
};

int trace_put(stepaf_context_h ctx, const struct place *place, const struct spans *spans,
              struct blob *blob, struct reason *reason)
{
    size_t n_records = 0;
    size_t n_spans = spans->count < spans->capacity ? spans->count : spans->capacity;
    stepaf_trace_record_t *records = malloc(RECORDS_MAX * sizeof(*records));
    if (!records)
        return reason_no_memory(reason);
    if (stepaf_trace_read(ctx, records, sizeof(*records), RECORDS_MAX, &n_records) != STEPAF_OK)
        n_records = 0;
    const struct head head = {*place, n_spans, n_records};
    blob_put(blob, &head, sizeof(head));
    blob_put(blob, spans->ring, n_spans * sizeof(spans->ring[0]));
    blob_put(blob, records, n_records * sizeof(*records));
    free(records);
    return blob->failed ? reason_no_memory(reason) : 0;
}

static int take_part(const char *bytes, size_t length, struct part *part)
{
    struct blob_reader reader = {bytes, length};
    void *block;
    if (blob_take(&reader, &part->head, sizeof(part->head)) ||
        blob_take_array(&reader, part->head.n_spans, sizeof(struct span), &block))
        return -1;
    part->spans = block;
    if (blob_take_array(&reader, part->head.n_records, sizeof(stepaf_trace_record_t), &block))
        return -1;
    part->records = block;
    return 0;
}

static double us_since(int64_t time_ns, int64_t origin_ns)
{
    return (double)(time_ns - origin_ns) * 1e-3;
}

static void write_name(FILE *file, int rank, int lane, const char *name, int number)
{
    fprintf(file,
            ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,"
            "\"args\":{\"name\":\"%s",
            rank, lane, name);
    if (number >= 0)
        fprintf(file, " %d", number);
    fputs("\"}}", file);
}

static void write_rank(FILE *file, const struct place *place, int microbatches)
{
    int attention = place->role == STEPAF_ATTENTION;
    fprintf(file,
            "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,"
            "\"args\":{\"name\":\"rank %d: %s %d\"}}",
            place->world ? ",\n" : "", place->world, place->world, attention ? "attention" : "FFN",
            place->index);
    write_name(file, place->world, LANE_WORK, attention ? "attention" : "FFN", -1);
    write_name(file, place->world, LANE_LIBRARY, "library", -1);
    if (!attention)
        return;
    write_name(file, place->world, LANE_WAIT, "waiting", -1);
    for (int m = 0; m < microbatches; m++)
        write_name(file, place->world, LANE_EXCHANGES + m, "in flight: microbatch", m);
}

static void write_span(FILE *file, const struct place *place, const struct span *span,
                       int64_t origin_ns)
{
    static const struct {
        const char *name;
        int lane;
    } kinds[SPAN_KINDS] = {[SPAN_ATTENTION] = {"attention", LANE_WORK},
                           [SPAN_WAIT] = {"wait", LANE_WAIT},
                           [SPAN_EXCHANGE] = {"exchange", LANE_EXCHANGES},
                           [SPAN_FFN] = {"ffn", LANE_WORK}};
    if (span->kind < 0 || span->kind >= SPAN_KINDS)
        return;
    int lane = kinds[span->kind].lane + (span->kind == SPAN_EXCHANGE ? span->microbatch : 0);
    fprintf(file,
            ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"layer\":%d,\"microbatch\":%d,\"attention_rank\":%d}}",
            kinds[span->kind].name, place->world, lane, us_since(span->begin_ns, origin_ns),
            us_since(span->end_ns, span->begin_ns), span->layer, span->microbatch,
            place->role == STEPAF_ATTENTION ? place->index : span->peer);
}

static void write_record(FILE *file, const struct place *place, const stepaf_trace_record_t *record,
                         int64_t origin_ns)
{
    fprintf(file,
            ",\n{\"ph\":\"i\",\"s\":\"t\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
            "\"args\":{\"plan\":%u,\"sequence\":%u,\"peer\":%d,\"tensor\":%d,\"bytes\":%" PRIu64
            "}}",
            stepaf_event_name((stepaf_event_t)record->event), place->world, LANE_LIBRARY,
            us_since(record->time_ns, origin_ns), record->plan, record->sequence, record->peer,
            record->tensor, record->bytes);
}

/* Find the earliest time of all; and in *microbatches_p the number of microbatches. */
static int64_t find_origin(const struct part *parts, int n, int *microbatches_p)
{
    int64_t origin = INT64_MAX;
    int microbatches = 0;
    for (int i = 0; i < n; i++) {
        for (uint64_t s = 0; s < parts[i].head.n_spans; s++) {
            const struct span *span = &parts[i].spans[s];
            origin = span->begin_ns < origin ? span->begin_ns : origin;
            microbatches = span->microbatch >= microbatches ? span->microbatch + 1 : microbatches;
        }
        for (uint64_t r = 0; r < parts[i].head.n_records; r++)
            if (parts[i].records[r].time_ns < origin)
                origin = parts[i].records[r].time_ns;
    }
    *microbatches_p = microbatches;
    return origin;
}

static int write_all(const char *path, const struct part *parts, int n, struct reason *reason)
{
    int microbatches;
    int64_t origin_ns = find_origin(parts, n, &microbatches);
    FILE *file = fopen(path, "w");
    if (!file)
        return reason_failed(reason, "%s: cannot be written: %s", path, strerror(errno));
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", file);
    for (int i = 0; i < n; i++)
        write_rank(file, &parts[i].head.place, microbatches);
    for (int i = 0; i < n; i++) {
        for (uint64_t s = 0; s < parts[i].head.n_spans; s++)
            write_span(file, &parts[i].head.place, &parts[i].spans[s], origin_ns);
        for (uint64_t r = 0; r < parts[i].head.n_records; r++)
            write_record(file, &parts[i].head.place, &parts[i].records[r], origin_ns);
    }
    fputs("\n]}\n", file);
    int failed = ferror(file);
    if (fclose(file) || failed)
        return reason_failed(reason, "%s: cannot be written", path);
    return 0;
}

int trace_write(const char *path, const char *all, const size_t *offsets, int n,
                struct reason *reason)
{
    int result = 0;
    struct part *parts = calloc((size_t)n, sizeof(parts[0]));
    if (!parts)
        return reason_no_memory(reason);
    for (int i = 0; i < n && result == 0; i++)
        if (take_part(all + offsets[i], offsets[i + 1] - offsets[i], &parts[i]))
            result = reason_failed(reason, "rank %d's trace is malformed", i);
    if (result == 0)
        result = write_all(path, parts, n, reason);
    for (int i = 0; i < n; i++) {
        free(parts[i].spans);
        free(parts[i].records);
    }
    free(parts);
    return result;
}
