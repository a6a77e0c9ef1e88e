/* SPDX-License-Identifier: Apache-2.0 */
#include "perf/fail.h"
#include "perf/gpu/gpu.h"

static const char reason[] = "this build has no CUDA, which --mem cuda needs";

int perf_gpu_ask(const struct perf_options *options)
{
    (void)options;
    return perf_fail("%s", reason);
}

int perf_gpu_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_place *place, struct perf_gpu **gpu_p)
{
    (void)job;
    (void)options;
    (void)place;
    (void)gpu_p;
    return perf_fail("%s", reason);
}

void perf_gpu_close(struct perf_gpu *gpu)
{
    (void)gpu;
}

void perf_gpu_print(const struct perf_gpu *gpu, const struct perf_options *options,
                    const struct perf_place *place)
{
    (void)gpu;
    (void)options;
    (void)place;
}

const char *perf_gpu_name(const struct perf_gpu *gpu)
{
    (void)gpu;
    return "";
}

int perf_gpu_row_run(struct perf_gpu *gpu, int row, int loaded, struct perf_result *result_p)
{
    (void)gpu;
    (void)row;
    (void)loaded;
    (void)result_p;
    return perf_fail("%s", reason);
}
