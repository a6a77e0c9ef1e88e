/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of tracing: two contexts, one with and one without tracing, take turns with the same
 * operations in the same processes. */
#ifndef PERF_TRACE_COST_H
#define PERF_TRACE_COST_H

#include "job.h"
#include "options.h"
#include "place.h"

/* Measure and print all rows. Collective; -1 with a sentence on every rank. */
int perf_trace_cost_run(struct perf_job *job, const struct perf_options *options,
                        const struct perf_place *place);

#endif
