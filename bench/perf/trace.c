/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fail.h"

enum { RECORDS_FIRST = 1 << 16, RECORDS_MAX = 1 << 24 };

/* The file is complete after each row, even if a later one ends the process: all ranks exit when
 * one is lost. */
static int end_row(struct perf_trace *trace)
{
    if (trace->end >= 0) {
        trace->end = ftello(trace->file);
        fputs("\n]}\n", trace->file);
    }
    return fflush(trace->file) != 0 ? perf_fail("%s: %s", trace->name, strerror(errno)) : 0;
}

/* Overwrite the file's previous tail. */
static int begin_row(struct perf_trace *trace)
{
    if (trace->end >= 0 && fseeko(trace->file, trace->end, SEEK_SET) != 0)
        return perf_fail("%s: %s", trace->name, strerror(errno));
    return 0;
}

int perf_trace_open(struct perf_trace *trace, const char *name, int rank)
{
    struct stat status;

    *trace = (struct perf_trace){.name = name};
    if (rank != 0)
        return 0;
    trace->file = fopen(name, "we");
    if (trace->file == NULL)
        return perf_fail("%s: %s", name, strerror(errno));
    fprintf(trace->file, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    trace->end = fstat(fileno(trace->file), &status) == 0 && S_ISREG(status.st_mode) ? 0 : -1;
    return trace->end < 0 ? 0 : end_row(trace);
}

/* The whole ring, however long the settings make it. */
static int read_ring(stepaf_context_h ctx, stepaf_trace_record_t **records_p, size_t *n_p)
{
    for (size_t capacity = RECORDS_FIRST;; capacity *= 2) {
        stepaf_trace_record_t *records = malloc(capacity * sizeof(*records));
        stepaf_status_t status;

        if (records == NULL)
            return perf_fail("out of memory: %zu trace records", capacity);
        status = stepaf_trace_read(ctx, records, sizeof(*records), capacity, n_p);
        if (status != STEPAF_OK) {
            free(records);
            return perf_fail_status(status, "stepaf_trace_read");
        }
        if (*n_p < capacity || capacity >= RECORDS_MAX) {
            *records_p = records;
            return 0;
        }
        free(records);
    }
}

static int write_all(struct perf_trace *trace, const struct perf_place *place,
                     const struct perf_case *c, const char *all, const size_t *offsets)
{
    struct perf_trace_source *sources = calloc((size_t)place->size, sizeof(*sources));
    int rc;

    if (sources == NULL)
        return perf_fail("out of memory");
    for (int i = 0; i < place->size; i++) {
        sources[i].rank = &place->ranks[i];
        sources[i].world_rank = i;
        sources[i].records = (const stepaf_trace_record_t *)(all + offsets[i]);
        sources[i].n = (offsets[i + 1] - offsets[i]) / sizeof(stepaf_trace_record_t);
    }
    rc = begin_row(trace);
    if (rc == 0)
        rc = perf_trace_write(trace, sources, place->size, c->microbatches, c->depth);
    if (rc == 0)
        rc = end_row(trace);
    free(sources);
    return rc;
}

int perf_trace_add(struct perf_trace *trace, struct perf_job *job, const struct perf_place *place,
                   const struct perf_case *c, stepaf_context_h ctx)
{
    stepaf_trace_record_t *records = NULL;
    size_t *offsets = NULL;
    void *all = NULL;
    size_t n = 0;
    int rc = perf_job_agree(job, read_ring(ctx, &records, &n));

    if (rc == 0)
        rc = perf_job_gather(job, records, n * sizeof(*records), &all, &offsets);
    if (rc == 0) {
        if (trace->file != NULL)
            rc = write_all(trace, place, c, all, offsets);
        rc = perf_job_agree(job, rc);
    }
    free(all);
    free(offsets);
    free(records);
    return rc;
}

int perf_trace_close(struct perf_trace *trace)
{
    int failed;

    if (trace->file == NULL)
        return 0;
    if (trace->end < 0)
        fputs("\n]}\n", trace->file);
    failed = ferror(trace->file);
    if (fclose(trace->file) != 0)
        failed = 1;
    trace->file = NULL;
    return failed ? perf_fail("%s: could not be written whole: %s", trace->name, strerror(errno))
                  : 0;
}
