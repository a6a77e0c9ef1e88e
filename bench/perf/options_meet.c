/* SPDX-License-Identifier: Apache-2.0 */
#include "options_meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

/* What a rank reports about its command line. */
struct verdict {
    uint64_t digest;
    char text[PERF_FAIL_MAX]; /* why it could not be parsed; else "" */
};

static uint64_t add(uint64_t digest, uint64_t number)
{
    digest = (digest ^ number) * 0x9e3779b97f4a7c15u;
    return digest ^ digest >> 29;
}

static uint64_t add_row(uint64_t digest, const struct perf_row_size *row)
{
    digest = add(add(digest, row->push_bytes), row->pull_bytes);
    digest = add(digest, (uint64_t)row->shape.ndim);
    for (int i = 0; i < row->shape.ndim; i++)
        digest = add(digest, (uint64_t)row->shape.dims[i]);
    return digest;
}

/* All options that ranks must share. The library compares roles and transports; files, and the
 * format of the table, matter at rank 0 alone. */
static uint64_t add_options(uint64_t digest, const struct perf_options *o)
{
    const uint64_t numbers[] = {(uint64_t)o->test,
                                (uint64_t)o->n_rows,
                                (uint64_t)o->push_dtype,
                                (uint64_t)o->pull_dtype,
                                o->route_topk,
                                o->microbatches,
                                o->depth,
                                o->run.iters,
                                o->run.warmup,
                                o->run.rounds,
                                o->run.max_time_s,
                                o->keys,
                                o->cuda.graph_ops,
                                o->cuda.stream_ops,
                                o->cuda.spare_sms,
                                (uint64_t)o->cuda.mem,
                                (uint64_t)o->cuda.load,
                                (uint64_t)o->baseline_nccl,
                                (uint64_t)o->scatter,
                                (uint64_t)o->check,
                                (uint64_t)o->recv_each,
                                (uint64_t)o->release_apart,
                                (uint64_t)o->user_memory,
                                (uint64_t)o->baseline_mpi,
                                (uint64_t)o->no_floor,
                                (uint64_t)o->trace_cost,
                                o->answers,
                                (uint64_t)o->startup,
                                (uint64_t)o->run.forever,
                                o->output.trace_file != NULL};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        digest = add(digest, numbers[i]);
    for (int i = 0; i < o->n_rows; i++)
        digest = add_row(digest, &o->rows[i]);
    return digest;
}

static int judge(const struct verdict *verdicts, int n)
{
    for (int i = 0; i < n; i++) {
        if (verdicts[i].text[0] == '\0')
            continue;
        return i == 0 ? perf_fail("%s", verdicts[i].text)
                      : perf_fail("rank %d: %.*s", i, PERF_FAIL_MAX - 32, verdicts[i].text);
    }
    for (int i = 1; i < n; i++) {
        if (verdicts[i].digest != verdicts[0].digest)
            return perf_fail("rank %d was given other options than rank 0", i);
    }
    return 0;
}

int perf_options_meet(struct perf_job *job, int n, const struct perf_options *options, int rc)
{
    struct verdict mine;
    size_t *offsets;
    void *all;

    memset(&mine, 0, sizeof(mine));
    for (int i = 0; i < n && rc == 0; i++)
        mine.digest = add_options(mine.digest, &options[i]);
    if (rc != 0)
        snprintf(mine.text, sizeof(mine.text), "%s", perf_fail_text());
    if (perf_job_gather(job, &mine, sizeof(mine), &all, &offsets) != 0)
        return -1;
    rc = judge(all, job->channel.size);
    free(all);
    free(offsets);
    return rc;
}
