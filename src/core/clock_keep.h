/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping time: what stamps of this rank are on the common clock (clock.c says whose clock that
 * is), and the largest error.
 *
 * The common clock is CLOCK_MONOTONIC and an offset. It is not CLOCK_MONOTONIC_RAW, though that
 * runs evenly: the caller's own stamps are of CLOCK_MONOTONIC, and one node's processes share it to
 * the nanosecond however the system slews it. The current time is read from that clock. Stamps of
 * the hot path are ticks. They are converted when they are read, using readings of both clocks
 * (base/clock_history.h). stepaf_clock_keep takes readings where transports look for dead peers,
 * and so does whoever reads stamps.
 *
 * The offset is 0 on the node whose clock it is. Elsewhere it follows probes, PING and PONG, which
 * stepaf_clock_keep sends ten times a second; base/clock_filter.h has offset and error. */
#ifndef STEPAF_CORE_CLOCK_KEEP_H
#define STEPAF_CORE_CLOCK_KEEP_H

#include "core/ctx.h"

/* Take the first readings; own is calibrated. */
void stepaf_clock_begin(struct stepaf_ctx *ctx);
/* Do what is due: a reading, probes. @a now: ticks. */
void stepaf_clock_keep(struct stepaf_ctx *ctx, uint64_t now);
/* Before stamps are read: take a reading, if the last one is too old for the newest stamps. */
void stepaf_clock_refresh(struct stepaf_ctx *ctx);
/* Nanoseconds of the common clock at @a ticks of this rank's. */
int64_t stepaf_clock_common_ns(const struct stepaf_ctx *ctx, uint64_t ticks);
/* How far this rank's common clock is from that of @a peer, at most; -1: not known. */
int64_t stepaf_clock_bound_ns(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer);

/* Send a probe. False: out of memory. */
bool stepaf_clock_ask(struct stepaf_peer *peer);
void stepaf_clock_ping(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_clock_pong(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* From now on this rank follows the clock of peer @a server, or, if that is negative, its own.
 * @a zero: its own is its node's. */
void stepaf_clock_follow(struct stepaf_ctx *ctx, int server, bool zero);

/* The common clock now; any thread, without the lock. The line is read again if it was changed
 * meanwhile. */
static inline int64_t stepaf_clock_now(const struct stepaf_ctx *ctx)
{
    const struct stepaf_clock_told *told = &ctx->clock.told;
    struct stepaf_clock_line line;
    uint32_t before;

    do {
        before = atomic_load_explicit(&told->version, memory_order_acquire);
        line = (struct stepaf_clock_line){
            .at_ns = atomic_load_explicit(&told->at_ns, memory_order_acquire),
            .offset_ns = atomic_load_explicit(&told->offset_ns, memory_order_acquire),
            .rate = atomic_load_explicit(&told->rate, memory_order_acquire),
            .slew_ns = atomic_load_explicit(&told->slew_ns, memory_order_acquire),
            .slew_over_ns = atomic_load_explicit(&told->slew_over_ns, memory_order_acquire),
        };
    } while ((before & 1) || atomic_load_explicit(&told->version, memory_order_relaxed) != before);
    int64_t now = stepaf_monotonic_ns();
    return now + stepaf_clock_line_at(&line, now);
}

#endif
