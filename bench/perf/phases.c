/* SPDX-License-Identifier: Apache-2.0 */
#include "phases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "row.h"
#include "stats.h"

enum { MOST_OPS = 200 };

enum phase { TOTAL, START, QUEUE, WORK, WAY, PHASES };

/* An attention rank's measurement. */
struct asker {
    struct perf_lib *lib;
    uint64_t most; /* capacity in operations */
    uint64_t n;    /* requested */
    double *us;    /* by FFN rank, phase and operation */
};

static double *times_of(const struct asker *asker, int f, enum phase phase)
{
    return asker->us + ((size_t)f * PHASES + (size_t)phase) * asker->most;
}

static int start(void *self, unsigned place, int stage)
{
    const struct asker *asker = self;

    return perf_lib_start(asker->lib, place, stage);
}

static void set_times(struct asker *asker, int f, const stepaf_timeline_t *timeline)
{
    double queue = (double)timeline->ffn_queue_ns;
    double work = (double)timeline->ffn_work_ns;
    double rest = (double)(timeline->answered_ns - timeline->notified_ns) - queue - work;
    int known = timeline->ffn_queue_ns >= 0 && timeline->ffn_work_ns >= 0;

    times_of(asker, f, TOTAL)[asker->n] = (double)timeline->answered_ns / 1e3;
    times_of(asker, f, START)[asker->n] = (double)timeline->notified_ns / 1e3;
    times_of(asker, f, QUEUE)[asker->n] = known ? queue / 1e3 : -1.0;
    times_of(asker, f, WORK)[asker->n] = known ? work / 1e3 : -1.0;
    /* Two clocks and their resolutions: the difference may be slightly negative. */
    times_of(asker, f, WAY)[asker->n] = !known ? -1.0 : rest > 0.0 ? rest / 1e3 : 0.0;
}

static int wait_and_ask(void *self, unsigned place, int stage)
{
    struct asker *asker = self;
    const struct perf_case *c = asker->lib->c;

    if (perf_lib_wait(asker->lib, place, stage) != 0)
        return -1;
    for (int f = 0; f < c->ffn && asker->n < asker->most; f++) {
        stepaf_timeline_t timeline = {.size = sizeof(timeline)};
        stepaf_status_t status;

        if (!perf_case_active(c, f))
            continue;
        status = stepaf_timeline_query(asker->lib->requests[place], f, &timeline);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_timeline_query");
        set_times(asker, f, &timeline);
    }
    asker->n += asker->n < asker->most;
    return 0;
}

static double median_of(const struct asker *asker, int f, enum phase phase)
{
    struct perf_stats stats;

    perf_stats_of(times_of(asker, f, phase), asker->n, &stats);
    return stats.p50;
}

static void describe_peers(const struct asker *asker, struct perf_peer *peers_p)
{
    const struct perf_lib *lib = asker->lib;

    for (int f = 0; f < lib->c->ffn; f++) {
        const char *link = stepaf_transport_name(lib->ctx, f);

        if (!perf_case_active(lib->c, f))
            continue;
        peers_p[f] = (struct perf_peer){.ops = asker->n,
                                        .total_us = median_of(asker, f, TOTAL),
                                        .start_us = median_of(asker, f, START),
                                        .queue_us = median_of(asker, f, QUEUE),
                                        .work_us = median_of(asker, f, WORK),
                                        .way_us = median_of(asker, f, WAY)};
        snprintf(peers_p[f].link, sizeof(peers_p[f].link), "%s", link != NULL ? link : "-");
    }
}

/* Measure an attention rank's part; *mine_p is an array by FFN rank. */
static int ask(struct perf_lib *lib, uint64_t ops, struct perf_peer **mine_p)
{
    struct asker asker = {.lib = lib, .most = ops};
    size_t ffn = (size_t)lib->c->ffn;
    int rc;

    *mine_p = calloc(ffn, sizeof(**mine_p));
    asker.us = calloc(ffn * PHASES * ops, sizeof(*asker.us));
    if (*mine_p == NULL || asker.us == NULL) {
        free(asker.us);
        return perf_fail("out of memory: the times of %llu operations", (unsigned long long)ops);
    }
    rc = perf_attend_ops(lib->c, &asker, start, wait_and_ask, ops, NULL);
    lib->started += (uint32_t)(ops / lib->c->microbatches);
    if (rc == 0)
        describe_peers(&asker, *mine_p);
    free(asker.us);
    return rc;
}

/* At rank 0: the results of the attention ranks, in their order. */
static int order(const struct perf_place *place, const char *all, const size_t *offsets,
                 struct perf_peer **peers_p)
{
    size_t row = (size_t)place->ffn * sizeof(**peers_p);

    *peers_p = calloc((size_t)place->attn, row);
    if (*peers_p == NULL)
        return perf_fail("out of memory: the times of %d attention ranks", place->attn);
    for (int a = 0; a < place->attn; a++)
        memcpy(*peers_p + (size_t)a * (size_t)place->ffn, all + offsets[place->attn_world[a]], row);
    return 0;
}

int perf_phases_measure(struct perf_job *job, const struct perf_place *place, struct perf_lib *lib,
                        uint64_t most_ops, struct perf_peer **peers_p)
{
    int attends = place->role == STEPAF_ATTENTION;
    struct perf_block block = {0};
    struct perf_peer *mine = NULL;
    size_t *offsets = NULL;
    void *all = NULL;
    int rc;

    *peers_p = NULL;
    if (lib->ctx == NULL || lib->c->n_stages > 1)
        return 0;
    block.timed_ops =
        perf_schedule_whole(most_ops < MOST_OPS ? most_ops : MOST_OPS, lib->c->window);
    rc = attends ? ask(lib, block.timed_ops, &mine) : perf_lib_run(lib, &block);
    rc = perf_job_end_block(job, lib->ctx, rc);
    if (rc == 0)
        rc = perf_job_gather(job, mine, attends ? (size_t)place->ffn * sizeof(*mine) : 0, &all,
                             &offsets);
    if (rc == 0)
        rc = perf_job_agree(job, place->rank == 0 ? order(place, all, offsets, peers_p) : 0);
    free(all);
    free(offsets);
    free(mine);
    return rc;
}
