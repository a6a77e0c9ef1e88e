/* SPDX-License-Identifier: Apache-2.0 */
#include "perf/gpu/wire.h"

#include <stdlib.h>

#include "perf/clock.h"
#include "perf/fail.h"
#include "perf/stats.h"

int perf_gpu_wire_open(struct perf_gpu *gpu, const struct perf_case *c, uint64_t ops,
                       struct perf_gpu_wire *wire_p)
{
    int rc;

    *wire_p = (struct perf_gpu_wire){.gpu = gpu, .c = c, .room = ops};
    rc = perf_buffers_open(c, gpu->place, NULL, 0, &wire_p->buffers);
    if (gpu->place->role == STEPAF_ATTENTION) {
        wire_p->samples = malloc(ops * sizeof(double));
        if (rc == 0 && wire_p->samples == NULL)
            rc = perf_fail("out of memory: %zu samples", wire_p->room);
    }
    if (perf_job_agree(gpu->job, rc) != 0)
        return -1;
    return perf_tcp_open(gpu->job, gpu->options, c, gpu->place, &wire_p->buffers, &wire_p->tcp);
}

void perf_gpu_wire_close(struct perf_gpu_wire *wire)
{
    if (wire->gpu == NULL)
        return;
    perf_tcp_close(&wire->tcp);
    perf_buffers_close(&wire->buffers);
    free(wire->samples);
    wire->gpu = NULL;
}

int perf_gpu_wire_run(struct perf_gpu_wire *wire, uint64_t ops)
{
    uint64_t left = wire->room - wire->n;
    struct perf_block block = {.lead_ops = wire->c->window};

    block.timed_ops = (ops < left ? ops : left) / wire->c->window * wire->c->window;
    if (block.timed_ops == 0)
        return 0;
    if (wire->samples != NULL)
        block.samples = wire->samples + wire->n;
    wire->n += block.timed_ops;
    return perf_job_end_block(wire->gpu->job, NULL, perf_tcp_run(&wire->tcp, &block));
}

int perf_gpu_wire_merge(struct perf_gpu_wire *wire, double *us_p)
{
    size_t n = wire->samples != NULL ? wire->n : 0;
    struct perf_stats stats;
    size_t *offsets;
    void *all;

    if (perf_job_gather(wire->gpu->job, wire->samples, n * sizeof(double), &all, &offsets) != 0)
        return -1;
    perf_stats_of(all, offsets[wire->gpu->place->size] / sizeof(double), &stats);
    *us_p = stats.p50 * perf_clock_ns_per_tick / 1e3;
    free(all);
    free(offsets);
    return 0;
}
