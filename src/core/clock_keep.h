/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping time: what stamps of this rank are on the common clock (clock.c says whose that is), and
 * how far from right that may be.
 *
 * The common clock is CLOCK_MONOTONIC and an offset. Not CLOCK_MONOTONIC_RAW, though that runs
 * evenly: the caller's own stamps are of the former, and one node's processes share it to the
 * nanosecond however the system slews it. What is asked for now is read from that clock. Stamps of
 * the hot path are ticks, and are converted when they are read, by readings of both clocks
 * (base/clock_history.h), which stepaf_clock_keep takes where transports look for dead peers, and
 * who reads stamps.
 *
 * The offset is 0 on the node whose clock it is. Elsewhere it follows probes, PING and PONG, which
 * stepaf_clock_keep sends ten times a second; all that the clock says of itself is in
 * base/clock_filter.h. */
#ifndef STEPAF_CORE_CLOCK_KEEP_H
#define STEPAF_CORE_CLOCK_KEEP_H

#include "core/ctx.h"

/* Take the first readings; own is calibrated. */
void stepaf_clock_begin(struct stepaf_ctx *ctx);
/* See to what is due: a reading, probes. @a now: ticks. */
void stepaf_clock_keep(struct stepaf_ctx *ctx, uint64_t now);
/* Take a reading, if the last one is too old for the newest stamps: before stamps are read. */
void stepaf_clock_refresh(struct stepaf_ctx *ctx);
/* Nanoseconds of the common clock at @a ticks of this rank's. */
int64_t stepaf_clock_common_ns(const struct stepaf_ctx *ctx, uint64_t ticks);
/* How far this rank's common clock is from that of @a peer, at most; -1: that is not known. */
int64_t stepaf_clock_bound_ns(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer);

/* Send a probe. False: out of memory. */
bool stepaf_clock_ask(struct stepaf_peer *peer);
void stepaf_clock_ping(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_clock_pong(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* From now on this rank goes by the clock of peer @a server, or, if that is negative, by its own.
 * @a zero: its own is its node's. */
void stepaf_clock_follow(struct stepaf_ctx *ctx, int server, bool zero);

/* The common clock now; any thread, without the lock. The line is read anew if it was changed
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
