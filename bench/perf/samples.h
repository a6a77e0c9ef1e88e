/* SPDX-License-Identifier: Apache-2.0 */
/* The file of --samples: every time that was measured. */
#ifndef PERF_SAMPLES_H
#define PERF_SAMPLES_H

#include <stdio.h>

#include "row.h"

/* Begin the file, of rank 0; -1 with a sentence. *file_p is to be closed by perf_samples_close. */
int perf_samples_open(const char *name, FILE **file_p);

/* The samples of one contender in row @a row, in the order of measuring; the byte offsets of each
 * rank's are in @a offsets. -1 with a sentence. */
int perf_samples_write(int row, const struct perf_case *c, enum perf_who who, int n_ranks,
                       const double *samples, const size_t *offsets);

/* Nothing where none is open. -1 with a sentence. */
int perf_samples_close(void);

#endif
