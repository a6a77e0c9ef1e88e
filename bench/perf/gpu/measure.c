/* SPDX-License-Identifier: Apache-2.0 */
/* The measurement of a row: contenders in turn, warmed up and timed, and the library's verified. */
#include <stdlib.h>

#include "perf/fail.h"
#include "perf/gpu/row_state.h"
#include "perf/progress.h"

/* Samples and elapsed time of a chunk that lasts at most this long, us. */
#define CHUNK_US 2e6

/* A load is started for several times the expected duration of a chunk, plus the host's time for
 * enqueuing the chunk. If the load was too short, the chunk is repeated beside a longer one. */
#define LOAD_FACTOR 4.0
#define LOAD_LEAST_US 20e3
enum { LOAD_TRIES = 12 };

/* Operations between two events: whole rounds of a plan's slots. */
static uint64_t unit_ops(const struct perf_options *options)
{
    uint64_t ops = options->cuda.graph_ops > 0 ? options->cuda.graph_ops : options->cuda.stream_ops;

    return (ops + options->depth - 1) / options->depth * options->depth;
}

/* Units of a contender's warm-up: two without a hold, and two chunks. */
enum { WARM_UP_FIRST = 2, WARM_UP_CHUNK = 2, WARM_UP_UNITS = WARM_UP_FIRST + 5 };

/* Connect, load, capture; and estimate the duration of a unit. */
static int warm_up_side(struct perf_gpu_row *row, struct perf_gpu_side *side, double *unit_us_p)
{
    struct perf_gpu_chunk *chunk;
    int rc;

    for (int i = 0; i < WARM_UP_FIRST; i++) {
        if (perf_gpu_play_first(&row->player, side) != 0)
            return -1;
    }
    if (row->gpu->options->cuda.graph_ops > 0 && perf_gpu_play_capture(&row->player, side) != 0)
        return -1;
    chunk = malloc(sizeof(*chunk));
    rc = perf_job_agree(row->gpu->job, chunk != NULL ? 0 : perf_fail("out of memory"));
    for (int units = WARM_UP_CHUNK; units <= WARM_UP_CHUNK + 1 && rc == 0; units++)
        rc = perf_gpu_play(&row->player, side, units, 0.0, chunk);
    if (rc == 0)
        rc = perf_job_max(row->gpu->job, chunk->elapsed_us / chunk->n, unit_us_p);
    free(chunk);
    return rc;
}

/* Choose the number of units of all streams in flight: limited by number, and by time. */
static uint64_t count_units(const struct perf_gpu_row *row, double unit_us)
{
    const struct perf_options *options = row->gpu->options;
    uint64_t units = options->run.iters / (row->player.unit_ops * row->c.microbatches);

    if (options->run.max_time_s > 0 && unit_us > 0.0) {
        double affordable = (double)options->run.max_time_s * 1e6 / unit_us;

        if (affordable < (double)units)
            units = (uint64_t)affordable;
    }
    return units > 0 ? units : 1;
}

static void schedule(struct perf_gpu_row *row)
{
    uint64_t units = count_units(row, row->unit_us);
    uint64_t most = PERF_GPU_UNITS - 1;

    if (row->unit_us * (double)most > CHUNK_US)
        most = row->unit_us < CHUNK_US ? (uint64_t)(CHUNK_US / row->unit_us) : 1;
    row->chunks = (units + most - 1) / most;
    row->units = (int)(units / row->chunks);
    if (row->loaded)
        row->load_us = LOAD_LEAST_US + LOAD_FACTOR * row->unit_us * (row->units + 1);
}

static int warm_up(struct perf_gpu_row *row)
{
    for (int who = 0; who < PERF_WHO_LAST; who++) {
        double unit_us;

        if (row->sides[who].enqueue == NULL)
            continue;
        if (warm_up_side(row, &row->sides[who], &unit_us) != 0)
            return -1;
        if (unit_us > row->unit_us)
            row->unit_us = unit_us;
    }
    schedule(row);
    return 0;
}

static int allocate_samples(struct perf_gpu_row *row)
{
    size_t n = row->chunks * (size_t)(row->units + 1) * row->c.microbatches;

    for (int who = 0; who < PERF_WHO_LAST && row->gpu->place->role == STEPAF_ATTENTION; who++) {
        struct perf_gpu_samples *samples = &row->samples[who];

        if (row->sides[who].enqueue == NULL)
            continue;
        samples->unit = malloc(n * sizeof(double));
        samples->host = malloc(n * sizeof(double));
        if (samples->unit == NULL || samples->host == NULL)
            return perf_fail("out of memory: %zu samples", n);
    }
    return 0;
}

/* Compute times of an operation from those of a chunk's units. */
static void keep(const struct perf_gpu_row *row, const struct perf_gpu_chunk *chunk,
                 struct perf_gpu_samples *samples)
{
    double ops = (double)row->player.unit_ops;

    samples->elapsed_us += chunk->elapsed_us;
    if (samples->unit == NULL)
        return;
    for (int s = 0; s < row->gpu->n_streams; s++) {
        for (int u = 0; u < chunk->n; u++)
            samples->unit[samples->n_unit++] = chunk->unit_us[s][u] / ops;
    }
    for (int i = 0; i < chunk->n_host; i++)
        samples->host[samples->n_host++] = chunk->host_us[i] / ops;
}

/* Run a chunk, repeated if a load was required and did not last. */
static int play(struct perf_gpu_row *row, struct perf_gpu_side *side, struct perf_gpu_chunk *chunk)
{
    for (int i = 0; i < LOAD_TRIES; i++) {
        if (perf_gpu_play(&row->player, side, row->units + 1, row->load_us, chunk) != 0)
            return -1;
        if (chunk->lasted)
            return 0;
        row->load_us *= 2.0;
    }
    return perf_fail("no load lasts as long as a block of operations");
}

/* Return the work time of the library's thread so far; 0: there is none. */
static int ask_busy(const struct perf_gpu_row *row, double *ns_p)
{
    stepaf_counters_t counters = {.size = sizeof(counters)};
    stepaf_status_t status = stepaf_counters_query(row->lib.ctx, &counters);

    *ns_p = (double)counters.thread_busy_ns;
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_counters_query");
}

/* Run a contender's chunk; for the library's, record the work of the library's thread. */
static int play_side(struct perf_gpu_row *row, int who, struct perf_gpu_chunk *chunk)
{
    double before, after;

    if (who != PERF_OURS)
        return play(row, &row->sides[who], chunk);
    if (ask_busy(row, &before) != 0 || play(row, &row->sides[who], chunk) != 0 ||
        ask_busy(row, &after) != 0)
        return -1;
    row->busy_ns += after - before;
    row->busy_ops += (double)(row->units + 1) * (double)row->player.unit_ops * row->c.microbatches;
    return 0;
}

static int run_chunks(struct perf_gpu_row *row, struct perf_gpu_chunk *chunk, int index)
{
    for (uint64_t i = 0; i < row->chunks; i++) {
        perf_progress(row->gpu->options, index, i, row->chunks);
        for (uint64_t turn = 0; turn < PERF_WHO_LAST; turn++) {
            /* Each is first in turn: the order must not matter. */
            uint64_t who = (i + turn) % PERF_WHO_LAST;

            if (row->sides[who].enqueue == NULL)
                continue;
            if (play_side(row, (int)who, chunk) != 0)
                return -1;
            keep(row, chunk, &row->samples[who]);
        }
        if (row->wire.gpu != NULL &&
            perf_gpu_wire_run(&row->wire,
                              (uint64_t)row->units * row->player.unit_ops * row->c.window) != 0)
            return -1;
    }
    return row->wire.gpu != NULL ? perf_gpu_wire_merge(&row->wire, &row->wire_us) : 0;
}

/* Where peers are reached through the host over TCP alone, measure plain TCP too, in turn with
 * the others. */
static int open_wire(struct perf_gpu_row *row)
{
    const struct perf_gpu *gpu = row->gpu;
    uint64_t ops = row->chunks * (uint64_t)row->units * row->player.unit_ops * row->c.window;

    if (gpu->options->no_floor || row->ways != 1u << PERF_GPU_PROXY ||
        !perf_links_have(row->transport, "tcp") || perf_links_have(row->transport, "shm") ||
        perf_links_have(row->transport, "verbs"))
        return 0;
    return perf_gpu_wire_open(row->gpu, &row->c, ops, &row->wire);
}

/* As many operations again, verified: as far as there is time. */
static int run_checked(struct perf_gpu_row *row, struct perf_gpu_chunk *chunk)
{
    uint64_t units;

    row->timed_units = row->chunks * (uint64_t)row->units;
    if (row->checked.enqueue == NULL)
        return 0;
    if (warm_up_side(row, &row->checked, &row->unit_us) != 0)
        return -1;
    row->checked_units = WARM_UP_UNITS; /* they were verified as well */
    units = count_units(row, row->unit_us);
    schedule(row);
    while (row->checked_units < units) {
        if (play(row, &row->checked, chunk) != 0)
            return -1;
        row->checked_units += (uint64_t)row->units + 1;
    }
    return perf_job_agree(row->gpu->job, perf_gpu_proof_read(&row->lib, &row->wrong_bytes));
}

int perf_gpu_row_measure(struct perf_gpu_row *row, int index)
{
    struct perf_job *job = row->gpu->job;
    struct perf_gpu_chunk *chunk = malloc(sizeof(*chunk));
    int rc = perf_job_agree(job, chunk != NULL ? 0 : perf_fail("out of memory"));

    if (rc == 0)
        rc = perf_job_agree(
            job, perf_gpu_player_open(row->gpu, unit_ops(row->gpu->options), &row->player));
    if (rc == 0)
        rc = warm_up(row);
    if (rc == 0)
        rc = perf_job_agree(job, allocate_samples(row));
    if (rc == 0)
        rc = open_wire(row);
    if (rc == 0)
        rc = run_chunks(row, chunk, index);
    if (rc == 0)
        rc = run_checked(row, chunk);
    free(chunk);
    return rc;
}
