/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "fail.h"
#include "row_state.h"
#include "samples.h"

/* What a rank adds to a result besides its samples. */
struct share {
    double elapsed_us[PERF_WHO_LAST];
    uint64_t wrong_bytes;
};

static int merge_shares(struct perf_row *row, struct perf_result *r)
{
    struct share mine = {.wrong_bytes = row->lib.wrong_bytes};
    const struct share *shares;
    size_t *offsets;
    void *all;

    for (int who = 0; who < PERF_WHO_LAST; who++)
        mine.elapsed_us[who] = row->elapsed_ticks[who] * perf_clock_ns_per_tick / 1e3;
    if (perf_job_gather(row->job, &mine, sizeof(mine), &all, &offsets) != 0)
        return -1;
    shares = all;
    for (int i = 0; i < row->place->size; i++) {
        r->wrong_bytes += shares[i].wrong_bytes;
        for (int who = 0; who < PERF_WHO_LAST; who++) {
            double op_us = shares[i].elapsed_us[who] / (double)row->n_samples;

            if (op_us > r->us_per_op[who])
                r->us_per_op[who] = op_us;
        }
    }
    free(all);
    free(offsets);
    return 0;
}

static int merge_samples(struct perf_row *row, enum perf_who who, struct perf_result *r)
{
    int rc = 0;
    size_t n = row->samples[who] != NULL ? row->n_samples : 0;
    size_t *offsets;
    double *samples;
    void *all;

    /* Ticks are this rank's own: hosts differ in their rate. */
    for (size_t i = 0; i < n; i++)
        row->samples[who][i] *= perf_clock_ns_per_tick / 1e3;
    if (perf_job_gather(row->job, row->samples[who], n * sizeof(double), &all, &offsets) != 0)
        return -1;
    n = offsets[row->place->size] / sizeof(double);
    samples = all;
    if (row->place->rank == 0 && row->options->output.samples_file != NULL)
        rc = perf_samples_write(r->index, &row->c, who, row->place->size, samples, offsets);
    if (row->place->rank == 0 && row->options->output.json_file != NULL && rc == 0) {
        r->spread[who] = perf_spread_make(samples, offsets, row->place->size, row->schedule.rounds);
        if (r->spread[who] == NULL)
            rc = perf_fail("out of memory: the spread of %zu samples", n);
    }
    if (row->place->rank == 0)
        perf_stats_of(samples, n, &r->stats[who]);
    free(all);
    free(offsets);
    return perf_job_agree(row->job, rc);
}

/* Name the links and the floor. */
static void describe(const struct perf_row *row, struct perf_result *r)
{
    const char *alone = "memcpy"; /* without the library, the floor's transport */

    r->floor_name = "memcpy and flag";
    r->floor_word = "memcpy";
    r->floor_wait = "";
    if (row->tcp.conns != NULL) {
        alone = "sockets";
        r->floor_name = "raw tcp ping-pong";
        r->floor_word = row->tcp.way == PERF_TCP_SPIN ? "tcp;spin" : "tcp;block";
        r->floor_wait = perf_tcp_way_name(row->tcp.way);
    } else if (row->verbs != NULL) {
        alone = "verbs";
        r->floor_name = "raw verbs ping-pong";
        r->floor_word = "verbs";
    } else if (row->ofi != NULL) {
        alone = "libfabric";
        r->floor_name = "raw libfabric ping-pong";
        r->floor_word = "ofi";
    } else if (row->ucx != NULL) {
        alone = "UCX";
        r->floor_name = "raw UCX ping-pong";
        r->floor_word = "ucx";
    }
    snprintf(r->transport, sizeof(r->transport), "%s",
             row->lib.ctx != NULL ? row->transport : alone);
}

/* Numbers over another path than the named one, or over none, are worthless. */
static int check_links(const struct perf_row *row)
{
    stepaf_status_t status;

    if (row->lib.ctx == NULL)
        return 0;
    status = stepaf_map_check(row->lib.ctx, STEPAF_TIMEOUT_DEFAULT, NULL);
    return status == STEPAF_OK ? 0 : perf_fail_status(status, "stepaf_map_check");
}

void perf_result_free(struct perf_result *r)
{
    for (int who = 0; who < PERF_WHO_LAST; who++)
        perf_spread_free(r->spread[who]);
    free(r->peers);
}

int perf_row_merge(struct perf_row *row, struct perf_result *r)
{
    enum perf_who who;

    r->c = row->c;
    describe(row, r);
    r->iters = row->n_samples;
    r->checked = row->options->check;
    r->checked_ops = row->checked_ops;
    if (check_links(row) != 0 || merge_shares(row, r) != 0)
        return -1;
    for (int i = 0; i < PERF_WHO_LAST; i++) {
        r->has[i] = row->contenders[i].run != NULL;
        if (r->has[i] && merge_samples(row, i, r) != 0)
            return -1;
    }
    who = perf_result_main(r);
    r->ops_per_s = perf_result_ops_per_s(r, who);
    r->gb_per_s = perf_result_gb_per_s(r, who);
    for (int f = 0; f < row->c.ffn; f++)
        r->posts_per_op += perf_case_active(&row->c, f) ? row->c.n_stages : 0;
    return 0;
}
