/* SPDX-License-Identifier: Apache-2.0 */
/* A progress line on the terminal for a long run; nothing where there is no terminal. */
#ifndef PERF_PROGRESS_H
#define PERF_PROGRESS_H

#include "options.h"

/* Rank 0 calls this before anything is shown; other ranks never do, and show nothing. */
void perf_progress_begin(void);

void perf_progress(const struct perf_options *options, int row, uint64_t done, uint64_t of);
void perf_progress_clear(void);

#endif
