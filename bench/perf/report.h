/* SPDX-License-Identifier: Apache-2.0 */
/* The output of rank 0: options and ranks first, the table, JSON. */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include <jansson.h>

#include "gpu/gpu.h"
#include "job.h"
#include "options.h"
#include "place.h"
#include "row.h"

/* The options block and the rank table, as comment lines. @a gpu: of --mem cuda, else NULL. */
void perf_report_begin(const struct perf_job *job, const struct perf_options *options,
                       const struct perf_place *place, const struct perf_gpu *gpu);

/* The table's head, and a line for each result: aligned text, or with --csv all columns. */
void perf_table_head(const struct perf_options *options);
void perf_table_row(const struct perf_options *options, const struct perf_result *result);

/* Return what all rows of a run have in common as a JSON object; NULL if memory runs out. */
json_t *perf_json_head(const struct perf_job *job, const struct perf_options *options,
                       const struct perf_place *place);

/* Return a result as a JSON object, for the array, with @a head in it; NULL if memory runs out. */
json_t *perf_json_row(const struct perf_options *options, const struct perf_result *result,
                      json_t *head);

/* Get the CPU's name, NUL-terminated. */
void perf_report_processor(char *text_p, size_t capacity);

#endif
