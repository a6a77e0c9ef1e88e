/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PERF_OPTIONS_ROWS_H
#define PERF_OPTIONS_ROWS_H

#include "options.h"

/* The size options as given. */
struct perf_row_input {
    struct perf_sizes size, push_size, pull_size;
    struct perf_shapes shapes;
    int dtype_given;
};

/* Fill options->rows; -1 with a sentence. */
int perf_rows_make(const struct perf_row_input *input, struct perf_options *options);

/* Check that the options are consistent; -1 with a sentence. */
int perf_options_agree(const struct perf_options *options);

/* Name the JSON file that --report is made from, unless one is given: as the report, with .json.
 * The name lives as long as the options, until the process ends. -1 with a sentence, also where
 * two files have the same name. */
int perf_options_name(struct perf_options *options);

#endif
