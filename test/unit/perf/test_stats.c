/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_perf: statistics, the bytes of --check, and the merged trace. */
#include <stdlib.h>

#include "bench/perf/check.h"
#include "bench/perf/stats.h"
#include "bench/perf/trace.h"
#include "unit.h"

static void percentiles(void)
{
    double samples[1000];

    for (int i = 0; i < 1000; i++)
        samples[i] = i + 1;
    CU_ASSERT_EQUAL(perf_percentile(samples, 0, 0.5), 0.0);
    CU_ASSERT_EQUAL(perf_percentile(samples, 1, 0.999), 1.0);
    CU_ASSERT_EQUAL(perf_percentile(samples, 2, 0.5), 1.0);
    CU_ASSERT_EQUAL(perf_percentile(samples, 3, 0.5), 2.0);
    CU_ASSERT_EQUAL(perf_percentile(samples, 100, 0.99), 99.0);
    CU_ASSERT_EQUAL(perf_percentile(samples, 101, 0.99), 100.0);
    CU_ASSERT_EQUAL(perf_percentile(samples, 1000, 0.999), 999.0);
    CU_ASSERT_EQUAL(perf_percentile(samples, 999, 0.999), 999.0);
    CU_ASSERT_EQUAL(perf_percentile(samples, 1000, 0.0), 1.0);
    CU_ASSERT_EQUAL(perf_percentile(samples, 1000, 1.0), 1000.0);
}

static void statistics(void)
{
    double samples[] = {9, 2, 5, 4, 7, 4, 4, 5};
    double equal[] = {3, 3, 3};
    double zero[] = {0, 0};
    struct perf_stats s;

    perf_stats_of(samples, 8, &s);
    CU_ASSERT_EQUAL(s.n, 8);
    CU_ASSERT_EQUAL(s.min, 2);
    CU_ASSERT_EQUAL(s.max, 9);
    CU_ASSERT_EQUAL(s.p50, 4);
    CU_ASSERT_EQUAL(s.p99, 9);
    CU_ASSERT_DOUBLE_EQUAL(s.avg, 5.0, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(s.stddev_pct, 40.0, 1e-9);
    perf_stats_of(equal, 3, &s);
    CU_ASSERT_EQUAL(s.stddev_pct, 0);
    perf_stats_of(zero, 2, &s);
    CU_ASSERT_EQUAL(s.stddev_pct, 0);
    perf_stats_of(NULL, 0, &s);
    CU_ASSERT_EQUAL(s.n, 0);
    CU_ASSERT_EQUAL(s.p50, 0);
}

/* Any byte, any field of the origin: a difference is seen, and counted. */
static void wrong_bytes_are_counted(void)
{
    static const struct perf_origin other[] = {{.attn = 1},     {.ffn = 1},    {.place = 1},
                                               {.sequence = 1}, {.tensor = 1}, {.digest = 1},
                                               {.ffn = -1},     {.tensor = -1}};
    uint64_t seed = perf_seed(&(struct perf_origin){0});
    unsigned char data[64 + 1];

    for (size_t bytes = 0; bytes <= 64; bytes++) {
        memset(data, 0x5a, sizeof(data));
        perf_fill(data, bytes, seed);
        CU_ASSERT_EQUAL(data[bytes], 0x5a);
        CU_ASSERT_EQUAL(perf_count_wrong(data, bytes, seed), 0);
        for (size_t i = 0; i < bytes; i++) {
            uint64_t digest = perf_digest(0, data, bytes);

            data[i] ^= 0x80;
            CU_ASSERT_EQUAL(perf_count_wrong(data, bytes, seed), 1);
            CU_ASSERT_NOT_EQUAL(perf_digest(0, data, bytes), digest);
            data[i] ^= 0x80;
        }
    }
    perf_fill(data, 64, seed);
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        CU_ASSERT(perf_count_wrong(data, 64, perf_seed(&other[i])) > 56);
    CU_ASSERT_NOT_EQUAL(perf_digest(0, "", 0), perf_digest(0, "\0", 1));
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;

    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
        n++;
    return n;
}

static stepaf_trace_record_t record(int64_t time_ns, stepaf_event_t event, int peer)
{
    return (stepaf_trace_record_t){.time_ns = time_ns,
                                   .sequence = 3,
                                   .plan = 1,
                                   .event = (uint16_t)event,
                                   .peer = peer,
                                   .tensor = -1,
                                   .bytes = 64};
}

/* One operation of attention rank 0 at FFN rank 0, whose records come in any order, and records
 * that no rank should have. */
static void trace_is_merged(void)
{
    const struct perf_rank ranks[] = {{.host = "h", .role = STEPAF_FFN},
                                      {.host = "h", .role = STEPAF_ATTENTION}};
    const stepaf_trace_record_t ffn[] = {
        record(4000, STEPAF_EVENT_RESPONDED, 0), record(2000, STEPAF_EVENT_ARRIVED, 0),
        record(3000, STEPAF_EVENT_HANDLED, 0), record(3000, STEPAF_EVENT_HANDLED, 9),
        record(3000, STEPAF_EVENT_LAST, 0)};
    const stepaf_trace_record_t attention[] = {
        record(1000, STEPAF_EVENT_START, -1),   record(1200, STEPAF_EVENT_POSTED, 0),
        record(1500, STEPAF_EVENT_NOTIFIED, 0), record(1600, STEPAF_EVENT_WAITED, -1),
        record(5000, STEPAF_EVENT_ANSWERED, 0), record(5100, STEPAF_EVENT_COMPLETED, -1)};
    const struct perf_trace_source sources[] = {
        {.rank = &ranks[0], .world_rank = 0, .records = ffn, .n = 5},
        {.rank = &ranks[1], .world_rank = 1, .records = attention, .n = 6}};
    struct perf_trace trace = {.name = "test"};
    char *text = NULL;
    size_t bytes;

    trace.file = open_memstream(&text, &bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(trace.file);
    CU_ASSERT_EQUAL(perf_trace_write(&trace, sources, 2, 2, 1), 0);
    fclose(trace.file);
    CU_ASSERT_EQUAL(trace.base_ns, 1000);
    CU_ASSERT_EQUAL(count(text, "\"ph\":\"X\""), 5);
    UNIT_CONTAINS(text, "\"name\":\"operation\",\"pid\":1,\"tid\":2,\"ts\":0.000,\"dur\":4.100");
    UNIT_CONTAINS(text, "\"name\":\"push\",\"pid\":1,\"tid\":2,\"ts\":0.000,\"dur\":0.500");
    UNIT_CONTAINS(text, "\"name\":\"wait\",\"pid\":1,\"tid\":2,\"ts\":0.600,\"dur\":3.500");
    UNIT_CONTAINS(text, "\"name\":\"queue\",\"pid\":0,\"tid\":100002,\"ts\":1.000,\"dur\":1.000");
    UNIT_CONTAINS(text, "\"name\":\"batch\",\"pid\":0,\"tid\":100002,\"ts\":2.000,\"dur\":1.000");
    CU_ASSERT_EQUAL(count(text, "\"ph\":\"s\""), 2);
    CU_ASSERT_EQUAL(count(text, "\"ph\":\"f\""), 2);
    UNIT_CONTAINS(text, "microbatch 1 (plan 1)");
    UNIT_CONTAINS(text, "attention 0 (rank 1, h, pid 0)");
    free(text);
}

/* An operation that has lost its beginning to the ring, or has not ended, gives no span. */
static void trace_leaves_out_what_is_cut(void)
{
    const struct perf_rank rank = {.host = "h", .role = STEPAF_ATTENTION};
    const stepaf_trace_record_t records[] = {record(5000, STEPAF_EVENT_ANSWERED, -1),
                                             record(5100, STEPAF_EVENT_COMPLETED, -1)};
    const struct perf_trace_source source = {.rank = &rank, .records = records, .n = 2};
    struct perf_trace trace = {.name = "test"};
    char *text = NULL;
    size_t bytes;

    trace.file = open_memstream(&text, &bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(trace.file);
    CU_ASSERT_EQUAL(perf_trace_write(&trace, &source, 1, 1, 1), 0);
    fclose(trace.file);
    CU_ASSERT_EQUAL(count(text, "\"ph\":\"X\""), 0);
    free(text);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"percentiles", percentiles},
        {"statistics", statistics},
        {"wrong bytes are counted", wrong_bytes_are_counted},
        {"trace is merged", trace_is_merged},
        {"trace leaves out what is cut", trace_leaves_out_what_is_cut},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
