/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank shows to tools on the same machine (metrics_layout.h). Counters and peers are
 * copied where transports look for dead peers, at most ten times a second, so that the data path
 * is not involved.
 *
 * Times are measured while a tool asks, or always with STEPAF_METRICS=on. Then transports of an
 * attention rank deliver 32-bit answers to a function that also measures (meter.h), and an FFN
 * rank treats each answer like one that took long. Otherwise the path of 32-bit answers has no
 * measuring code, and the path of other answers has one test. */
#ifndef STEPAF_CORE_METRICS_H
#define STEPAF_CORE_METRICS_H

#include "core/ctx.h"
#include "core/histogram.h"
#include "core/op.h"

/* What differs while times are measured. */
struct stepaf_metrics_path {
    stepaf_deliver_imm_fn *deliver_imm;
    uint64_t told_from; /* of ctx->clock */
};

struct stepaf_metrics {
    struct stepaf_metrics_head *head; /* tools may write it: never find the tables by it */
    void *counters;
    struct stepaf_metrics_peer *peers;
    struct stepaf_histogram *histograms; /* STEPAF_TIMES per peer: see peer->times */
    struct stepaf_metrics_late *late;    /* per peer, and for this rank; NULL: not watched */
    size_t bytes;
    int fd;
    bool measures;
    uint64_t due;       /* ticks: time of the next write */
    uint32_t next_peer; /* ranks with many peers write some peers at a time */
    struct stepaf_metrics_path plain, measured;
};

/* Show this rank, unless STEPAF_METRICS=off. The peers are known. A failure is logged and has no
 * other effect. @a deliver_imm: where transports deliver while times are measured. */
void stepaf_metrics_open(struct stepaf_ctx *ctx, stepaf_deliver_imm_fn *deliver_imm);
void stepaf_metrics_close(struct stepaf_ctx *ctx);
/* Do what is due. @a now: ticks. */
void stepaf_metrics_keep(struct stepaf_ctx *ctx, uint64_t now);
/* Write immediately, due or not: something visible has changed. */
void stepaf_metrics_write(struct stepaf_ctx *ctx);

#endif
