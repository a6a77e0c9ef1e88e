/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank shows of itself to tools of the same machine (metrics_layout.h). Counters and peers
 * are copied where transports look for dead peers, ten times a second at most, so that the data
 * path knows nothing of it.
 *
 * Times are measured while a tool asks, or always with STEPAF_METRICS=on. Then transports of an
 * attention rank deliver answers of 32 bits to a function that also measures (meter.h), and an FFN
 * rank treats each answer like one that took long. Otherwise nothing of it is on the path of these
 * answers, and one test on the path of other answers. */
#ifndef STEPAF_CORE_METRICS_H
#define STEPAF_CORE_METRICS_H

#include "core/ctx.h"
#include "core/histogram.h"
#include "core/op.h"

/* What is different while times are measured. */
struct stepaf_metrics_path {
    stepaf_deliver_imm_fn *deliver_imm;
    uint64_t told_from; /* of ctx->clock */
};

struct stepaf_metrics {
    struct stepaf_metrics_head *head; /* tools may write to it: never find tables by it */
    void *counters;
    struct stepaf_metrics_peer *peers;
    struct stepaf_histogram *histograms; /* STEPAF_TIMES of each peer: see its times */
    struct stepaf_metrics_late *late;    /* of each peer, and of this rank; NULL: no verdicts */
    size_t bytes;
    int fd;
    bool measures;
    uint64_t due;       /* ticks: not rewritten before */
    uint32_t next_peer; /* a rank with many peers writes some at a time */
    struct stepaf_metrics_path plain, measured;
};

/* Show this rank, unless STEPAF_METRICS=off; peers are known. If that is not possible, it is
 * logged, and nothing else happens. @a deliver_imm: what transports deliver to while times are
 * measured. */
void stepaf_metrics_open(struct stepaf_ctx *ctx, stepaf_deliver_imm_fn *deliver_imm);
void stepaf_metrics_close(struct stepaf_ctx *ctx);
/* Do what is due. @a now: ticks. */
void stepaf_metrics_keep(struct stepaf_ctx *ctx, uint64_t now);
/* Write immediately, due or not: something has changed that tools should see. */
void stepaf_metrics_write(struct stepaf_ctx *ctx);

#endif
