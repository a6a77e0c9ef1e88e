/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tensors in GPU memory, for the rest of the program: without CUDA's types. A build
 * without the toolkit has none.c, which rejects them. */
#ifndef PERF_GPU_GPU_H
#define PERF_GPU_GPU_H

#include "perf/job.h"
#include "perf/options.h"
#include "perf/place.h"
#include "perf/row.h"

struct perf_gpu;

/* Apply the process's own settings that a run depends on. Call before anything else uses CUDA.
 * -1 with a sentence, also where this build has no CUDA. */
int perf_gpu_ask(const struct perf_options *options);

/* Select this rank's GPU: its number on the node modulo the GPUs that it sees. With --baseline
 * nccl all ranks meet in NCCL. Collective; -1 with a sentence on every rank. */
int perf_gpu_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_place *place, struct perf_gpu **gpu_p);

/* NULL is ignored. */
void perf_gpu_close(struct perf_gpu *gpu);

/* Print the head's lines about GPUs. Rank 0 only. */
void perf_gpu_print(const struct perf_gpu *gpu, const struct perf_options *options,
                    const struct perf_place *place);

/* Return the name of rank 0's GPU. */
const char *perf_gpu_name(const struct perf_gpu *gpu);

/* Measure row @a row; @a loaded: beside a kernel that fills the GPUs. Collective; -1 with a
 * sentence on every rank. */
int perf_gpu_row_run(struct perf_gpu *gpu, int row, int loaded, struct perf_result *result_p);

#endif
