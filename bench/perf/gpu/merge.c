/* SPDX-License-Identifier: Apache-2.0 */
/* Merging of all ranks' measurements into a result. */
#include <stdio.h>
#include <stdlib.h>

#include "perf/fail.h"
#include "perf/gpu/row_state.h"
#include "perf/samples.h"

/* What a rank adds to a result besides its samples. */
struct share {
    double elapsed_us[PERF_WHO_LAST];
    double thread_us;
    uint64_t wrong_bytes;
};

/* In one-way tests the receiver's time counts as well: a sender may finish before. */
static int merge_shares(const struct perf_gpu_row *row, struct perf_result *r)
{
    const struct perf_place *place = row->gpu->place;
    struct share mine = {.wrong_bytes = row->wrong_bytes};
    const struct share *shares;
    size_t *offsets;
    void *all;

    for (int who = 0; who < PERF_WHO_LAST; who++)
        mine.elapsed_us[who] = row->samples[who].elapsed_us;
    if (row->busy_ops > 0.0)
        mine.thread_us = row->busy_ns / 1e3 / row->busy_ops;
    if (perf_job_gather(row->gpu->job, &mine, sizeof(mine), &all, &offsets) != 0)
        return -1;
    shares = all;
    for (int i = 0; i < place->size; i++) {
        r->wrong_bytes += shares[i].wrong_bytes;
        if (shares[i].thread_us > r->cpu.thread_us)
            r->cpu.thread_us = shares[i].thread_us;
        if (place->ranks[i].role != STEPAF_ATTENTION && !perf_gpu_one_way(row->gpu))
            continue;
        for (int who = 0; who < PERF_WHO_LAST; who++) {
            double op_us = shares[i].elapsed_us[who] / (double)r->iters;

            if (op_us > r->us_per_op[who])
                r->us_per_op[who] = op_us;
        }
    }
    free(all);
    free(offsets);
    return 0;
}

/* Compute the statistics of all ranks' samples, on rank 0, which writes them on request. */
static int merge_samples(const struct perf_gpu_row *row, enum perf_who who, struct perf_result *r)
{
    const struct perf_gpu_samples *samples = &row->samples[who];
    const struct perf_place *place = row->gpu->place;
    int rc = 0;
    size_t *offsets;
    void *all;

    if (perf_job_gather(row->gpu->job, samples->unit, samples->n_unit * sizeof(double), &all,
                        &offsets) != 0)
        return -1;
    if (place->rank == 0 && row->gpu->options->output.samples_file != NULL)
        rc = perf_samples_write(r->index, &row->c, who, place->size, all, offsets);
    if (place->rank == 0)
        perf_stats_of(all, offsets[place->size] / sizeof(double), &r->stats[who]);
    free(all);
    free(offsets);
    return perf_job_agree(row->gpu->job, rc);
}

/* Compute the host's time in the calls: the median of all ranks, on rank 0. */
static int merge_host(const struct perf_gpu_row *row, enum perf_who who, struct perf_result *r)
{
    const struct perf_gpu_samples *samples = &row->samples[who];
    int size = row->gpu->place->size;
    struct perf_stats host;
    size_t *offsets;
    void *all;

    if (perf_job_gather(row->gpu->job, samples->host, samples->n_host * sizeof(double), &all,
                        &offsets) != 0)
        return -1;
    if (row->gpu->place->rank == 0) {
        perf_stats_of(all, offsets[size] / sizeof(double), &host);
        r->cpu.host_us[who] = host.p50;
    }
    free(all);
    free(offsets);
    return 0;
}

int perf_gpu_row_merge(struct perf_gpu_row *row, struct perf_result *r)
{
    const struct perf_options *options = row->gpu->options;

    r->c = row->c;
    r->loaded = row->loaded;
    r->unit_ops = row->player.unit_ops;
    r->gpu = perf_gpu_name(row->gpu);
    r->floor_name = row->floor.gpu != NULL ? "copy engine"
                    : row->bare.pinned     ? "bare kernels through pinned host memory"
                                           : "bare kernels through GPU memory";
    r->floor_word = row->floor.gpu != NULL ? "copies" : row->bare.pinned ? "pinned" : "kernels";
    r->copies_us = row->copies_us;
    r->wire_us = row->wire_us;
    r->floor_wait = "";
    snprintf(r->transport, sizeof(r->transport), "%s", row->transport);
    r->iters = row->timed_units * row->player.unit_ops * row->c.microbatches;
    r->checked = options->check;
    r->checked_ops = row->checked_units * row->player.unit_ops * row->c.microbatches;
    if (merge_shares(row, r) != 0)
        return -1;
    for (int who = 0; who < PERF_WHO_LAST; who++) {
        r->has[who] = row->sides[who].enqueue != NULL;
        if (!r->has[who])
            continue;
        if (merge_samples(row, who, r) != 0 || merge_host(row, who, r) != 0)
            return -1;
    }
    if (r->us_per_op[PERF_OURS] > 0.0)
        r->ops_per_s = (double)row->c.attn * 1e6 / r->us_per_op[PERF_OURS];
    r->gb_per_s = perf_result_gb_per_s(r, PERF_OURS);
    return 0;
}
