/* SPDX-License-Identifier: Apache-2.0 */
#include "row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "baseline_mpi.h"
#include "clock.h"
#include "fail.h"
#include "guard.h"
#include "progress.h"
#include "row_state.h"
#include "stop.h"

/* Guards: the limit for waits of unknown duration, and the maximum for alarm. */
enum { UNSET_WAIT_S = 60, MOST_S = 1000000 };

/* Whether the links are of transport @a name, or would be without the library. */
static int is_fabric(const struct perf_row *row, const char *name)
{
    const char *setting = perf_links_setting();

    if (row->lib.ctx != NULL)
        return perf_links_have(row->transport, name);
    return perf_links_have(setting, name) && !perf_links_have(setting, "shm");
}

/* Plain verbs on the device of this rank's first link. */
static int open_verbs(struct perf_row *row, const struct perf_buffers *buffers)
{
    const char *link = row->lib.ctx != NULL ? stepaf_transport_name(row->lib.ctx, 0) : NULL;

    if (perf_verbs_open(row->job, row->options, &row->c, row->place, buffers, link, &row->verbs) !=
        0)
        return -1;
    row->contenders[PERF_FLOOR_LOOP] = (struct perf_contender){row->verbs, perf_verbs_run};
    return 0;
}

/* Plain writes by the provider of this rank's first link. */
static int open_ofi(struct perf_row *row, const struct perf_buffers *buffers)
{
    const char *link = row->lib.ctx != NULL ? stepaf_transport_name(row->lib.ctx, 0) : NULL;

    if (perf_ofi_open(row->job, row->options, &row->c, row->place, buffers, link, &row->ofi) != 0)
        return -1;
    row->contenders[PERF_FLOOR_LOOP] = (struct perf_contender){row->ofi, perf_ofi_run};
    return 0;
}

/* The floor is that of the fabric: plain verbs for RDMA links, plain writes for libfabric's,
 * plain active messages for UCX's, plain sockets for TCP. Without the library, plain sockets
 * where the ranks do not share memory. */
static int open_floor(struct perf_row *row, const struct perf_buffers *buffers)
{
    struct perf_contender *contender = &row->contenders[PERF_FLOOR_LOOP];

    if (perf_verbs_built() && is_fabric(row, "verbs"))
        return open_verbs(row, buffers);
    if (perf_ofi_built() && is_fabric(row, "ofi"))
        return open_ofi(row, buffers);
    if (perf_ucx_built() && is_fabric(row, "ucx")) {
        if (perf_ucx_open(row->job, row->options, &row->c, row->place, buffers, &row->ucx) != 0)
            return -1;
        *contender = (struct perf_contender){row->ucx, perf_ucx_run};
        return 0;
    }
    if (is_fabric(row, "tcp") || !row->place->one_node) {
        if (perf_tcp_open(row->job, row->options, &row->c, row->place, buffers, &row->tcp) != 0)
            return -1;
        *contender = (struct perf_contender){&row->tcp, perf_tcp_run};
        return 0;
    }
    if (perf_floor_open(row->job, row->options, &row->c, row->place, buffers, &row->floor) != 0)
        return -1;
    *contender = (struct perf_contender){&row->floor, perf_floor_run};
    return 0;
}

static int open_contenders(struct perf_row *row)
{
    const struct perf_options *options = row->options;
    const struct perf_buffers *buffers = &row->lib.buffers;
    int rc = 0;

    if (options->test == PERF_FLOOR) {
        buffers = &row->own;
        rc = perf_buffers_open(&row->c, row->place, NULL, 0, &row->own);
        if (perf_job_agree(row->job, rc) != 0)
            return -1;
    } else {
        if (perf_lib_open(row->job, options, &row->c, row->place, &row->lib) != 0)
            return -1;
        if (perf_links_learn(row->job, row->lib.ctx, row->transport) != 0)
            return -1;
        row->contenders[PERF_OURS] = (struct perf_contender){&row->lib, perf_lib_run};
    }
    if (options->baseline_mpi) {
        rc = perf_mpi_open(options, &row->c, row->place, buffers, &row->mpi);
        if (perf_job_agree(row->job, rc) != 0)
            return -1;
        row->contenders[PERF_MPI] = (struct perf_contender){row->mpi, perf_mpi_run};
    }
    return options->no_floor ? 0 : open_floor(row, buffers);
}

static void close_contenders(struct perf_row *row)
{
    perf_mpi_close(row->mpi);
    perf_floor_close(&row->floor);
    perf_tcp_close(&row->tcp);
    perf_verbs_close(row->verbs);
    perf_ofi_close(row->ofi);
    perf_ucx_close(row->ucx);
    perf_lib_close(&row->lib);
    perf_buffers_close(&row->own);
    for (int who = 0; who < PERF_WHO_LAST; who++)
        free(row->samples[who]);
}

/* From here on a block of @a ops operations, of @a op_us each if known, must end within a limit:
 * only the library's waits have deadlines. */
static void guard_block(const struct perf_row *row, uint64_t ops, double op_us)
{
    double given = perf_options_wait_s(row->options);
    double wait = given > 0.0 ? given : UNSET_WAIT_S;
    double seconds = wait + 5.0 + (op_us > 0.0 ? 10.0 * op_us / 1e6 : wait) * (double)ops;
    char text[128];

    if (seconds > MOST_S)
        seconds = MOST_S;
    snprintf(text, sizeof(text),
             "rank %d failed: a block of operations has not ended within %.0f s", row->place->rank,
             seconds);
    perf_guard((unsigned)seconds, text);
}

static int end_block(struct perf_row *row, int rc)
{
    rc = perf_job_end_block(row->job, row->lib.ctx, rc);
    perf_unguard();
    return rc;
}

/* Run @a ops operations with each contender, and get the time of the slowest for one. */
static int estimate(struct perf_row *row, uint64_t ops)
{
    double slowest = 0.0;

    for (int who = 0; who < PERF_WHO_LAST; who++) {
        struct perf_block block = {.timed_ops = ops};
        double op_us;
        int rc;

        if (row->contenders[who].run == NULL)
            continue;
        guard_block(row, ops, row->op_us);
        rc = row->contenders[who].run(row->contenders[who].self, &block);
        if (end_block(row, rc) != 0)
            return -1;
        op_us = (double)block.elapsed * perf_clock_ns_per_tick / 1e3 / (double)ops;
        if (op_us > slowest)
            slowest = op_us;
    }
    return perf_job_max(row->job, slowest, &row->op_us);
}

/* Warm up, as far as there is time, and decide how many operations to measure. */
static int warm_up(struct perf_row *row)
{
    unsigned window = row->c.window;
    uint64_t ops;

    for (int i = 0; i < 2; i++) {
        if (estimate(row, window) != 0)
            return -1;
    }
    ops = perf_schedule_warmup(row->options, row->op_us);
    if (ops > 0 && estimate(row, perf_schedule_whole(ops, window)) != 0)
        return -1;
    perf_schedule_make(row->options, window, row->op_us, &row->schedule);
    row->n_samples = row->schedule.rounds * row->schedule.timed_ops;
    return 0;
}

static int allocate_samples(struct perf_row *row)
{
    for (int who = 0; who < PERF_WHO_LAST && row->place->role == STEPAF_ATTENTION; who++) {
        if (row->contenders[who].run == NULL)
            continue;
        row->samples[who] = malloc(row->n_samples * sizeof(double));
        if (row->samples[who] == NULL)
            return perf_fail("out of memory: %llu samples", (unsigned long long)row->n_samples);
        /* No page fault may occur in a timed block. */
        memset(row->samples[who], 0, row->n_samples * sizeof(double));
    }
    return 0;
}

/* Verify as many operations as are timed, as far as there is time: verifying takes far longer
 * than moving. */
static int run_checked(struct perf_row *row, double *check_op_us)
{
    struct perf_block block = {.timed_ops = row->schedule.timed_ops};
    double budget_us = (double)row->options->run.max_time_s * 1e6 / (double)row->schedule.rounds;
    int64_t start_ns = perf_now_ns();
    int rc;

    if (*check_op_us == 0.0)
        block.timed_ops = row->c.window;
    else if (budget_us > 0.0 && (double)block.timed_ops * *check_op_us > budget_us)
        block.timed_ops = perf_schedule_whole((uint64_t)(budget_us / *check_op_us), row->c.window);
    guard_block(row, block.timed_ops, *check_op_us);
    rc = perf_lib_run_checked(&row->lib, &block);
    if (end_block(row, rc) != 0)
        return -1;
    row->checked_ops += block.timed_ops;
    return perf_job_max(
        row->job, (double)(perf_now_ns() - start_ns) / 1e3 / (double)block.timed_ops, check_op_us);
}

static int run_round(struct perf_row *row, uint64_t round, double *check_op_us)
{
    for (int i = 0; i < PERF_WHO_LAST; i++) {
        /* Each is first in turn: the order must not matter. */
        int who = (int)((round + (uint64_t)i) % PERF_WHO_LAST);
        struct perf_block block = {.lead_ops = row->schedule.lead_ops,
                                   .timed_ops = row->schedule.timed_ops};
        int rc;

        if (row->contenders[who].run == NULL)
            continue;
        if (row->samples[who] != NULL)
            block.samples = row->samples[who] + round * row->schedule.timed_ops;
        guard_block(row, block.lead_ops + block.timed_ops, row->op_us);
        rc = row->contenders[who].run(row->contenders[who].self, &block);
        if (end_block(row, rc) != 0)
            return -1;
        row->elapsed_ticks[who] += (double)block.elapsed;
    }
    if (!row->options->check)
        return 0;
    if (*check_op_us == 0.0 && run_checked(row, check_op_us) != 0)
        return -1;
    return run_checked(row, check_op_us);
}

/* Run all rounds; fewer if --forever ends: the row then contains the measurements so far. */
static int run_rounds(struct perf_row *row, int index)
{
    double check_op_us = 0.0;
    uint64_t done = 0;
    int stop = 0;

    while (done < row->schedule.rounds && !stop) {
        perf_progress(row->options, index, done, row->schedule.rounds);
        if (run_round(row, done++, &check_op_us) != 0 ||
            (row->options->run.forever && perf_stop_agree(row->job, &stop) != 0))
            return -1;
    }
    row->schedule.rounds = done;
    row->n_samples = done * row->schedule.timed_ops;
    return 0;
}

/* Measure phases if they have a destination: files are rank 0's alone, which decides for all. */
static int measure_phases(struct perf_row *row, struct perf_result *r)
{
    double wanted = row->place->rank == 0 && row->options->output.json_file != NULL;
    int rc = perf_job_max(row->job, wanted, &wanted);

    if (rc != 0 || wanted == 0.0)
        return rc;
    guard_block(row, row->schedule.timed_ops, row->op_us);
    rc = perf_phases_measure(row->job, row->place, &row->lib, row->schedule.timed_ops, &r->peers);
    perf_unguard();
    return rc;
}

int perf_row_run(struct perf_job *job, const struct perf_options *options,
                 const struct perf_place *place, int index, struct perf_trace *trace,
                 struct perf_result *result_p)
{
    struct perf_row row = {.job = job, .options = options, .place = place};
    int rc;

    memset(result_p, 0, sizeof(*result_p));
    result_p->index = index;
    perf_case_make(options, index, place->attn, place->ffn, &row.c);
    rc = open_contenders(&row);
    if (rc == 0)
        rc = warm_up(&row);
    if (rc == 0)
        rc = perf_job_agree(job, allocate_samples(&row));
    if (rc == 0)
        rc = run_rounds(&row, index);
    if (rc == 0)
        rc = perf_row_merge(&row, result_p);
    if (rc == 0)
        rc = measure_phases(&row, result_p);
    if (rc == 0 && trace != NULL)
        rc = perf_trace_add(trace, job, place, &row.c, row.lib.ctx);
    perf_progress_clear();
    close_contenders(&row);
    return rc;
}
