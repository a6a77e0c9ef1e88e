/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks' trace records as one file of Chrome's trace event format, for Perfetto: a process
 * for each rank, a track for each plan and buffer, spans for operations and batches, arrows for
 * the transfers between them. */
#ifndef PERF_TRACE_H
#define PERF_TRACE_H

#include <stdio.h>

#include <stepaf/trace.h>

#include "case.h"
#include "job.h"
#include "place.h"

struct perf_trace {
    FILE *file; /* rank 0 only */
    const char *name;
    int64_t end; /* end of the events, where the file's tail goes; -1: a pipe, terminated once */
    int64_t base_ns; /* time zero of the file: the first record of the first row */
    uint64_t n_events;
    uint64_t n_flows;
};

/* Rank 0 creates @a name before anything is measured, so that a failure is noticed early; the
 * other ranks only begin. -1 with a sentence. */
int perf_trace_open(struct perf_trace *trace, const char *name, int rank);

/* Add the contents of the context's ring. Collective; -1 with a sentence. */
int perf_trace_add(struct perf_trace *trace, struct perf_job *job, const struct perf_place *place,
                   const struct perf_case *c, stepaf_context_h ctx);

/* End the file; -1 with a sentence if it could not be written completely. */
int perf_trace_close(struct perf_trace *trace);

/* One rank's records. */
struct perf_trace_source {
    const struct perf_rank *rank;
    int world_rank;
    const stepaf_trace_record_t *records;
    size_t n;
};

/* Merge and write. Needs no job: for rank 0 and for tests. -1 with a sentence. */
int perf_trace_write(struct perf_trace *trace, const struct perf_trace_source *sources,
                     int n_sources, unsigned microbatches, unsigned depth);

#endif
