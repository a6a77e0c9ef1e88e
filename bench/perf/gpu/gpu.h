/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tensors in GPU memory, for the rest of the program: without a type of CUDA's. A build
 * without the toolkit has none.c, which refuses. */
#ifndef PERF_GPU_GPU_H
#define PERF_GPU_GPU_H

#include "perf/job.h"
#include "perf/options.h"
#include "perf/place.h"
#include "perf/row.h"

struct perf_gpu;

/* Before anything else of the process uses CUDA: settings of its own that a run depends on. -1 with
 * a sentence, as where this build has no CUDA. */
int perf_gpu_ask(const struct perf_options *options);

/* Take this rank's GPU: its number on the node modulo those that it sees. With --baseline nccl all
 * ranks meet in NCCL. Collective; -1 with a sentence on every rank. */
int perf_gpu_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_place *place, struct perf_gpu **gpu_p);

/* NULL is ignored. */
void perf_gpu_close(struct perf_gpu *gpu);

/* The head's lines about GPUs. Rank 0 alone. */
void perf_gpu_print(const struct perf_gpu *gpu, const struct perf_options *options,
                    const struct perf_place *place);

/* What rank 0's GPU is called. */
const char *perf_gpu_name(const struct perf_gpu *gpu);

/* Measure row @a row, @a loaded: beside a kernel that fills the GPUs. Collective; -1 with a
 * sentence on every rank. */
int perf_gpu_row_run(struct perf_gpu *gpu, int row, int loaded, struct perf_result *result_p);

#endif
