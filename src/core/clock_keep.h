/* SPDX-License-Identifier: Apache-2.0 */
/* Time keeping between commits: converts stamps of this rank to the common clock, and bounds the
 * error. clock.c chooses the reference.
 *
 * The common clock is CLOCK_MONOTONIC plus an offset. CLOCK_MONOTONIC_RAW runs evenly, but the
 * caller's own stamps are of CLOCK_MONOTONIC, and all processes of one node share
 * CLOCK_MONOTONIC to the nanosecond, however the system slews it. A request for the current time
 * reads CLOCK_MONOTONIC. Stamps of the hot path are ticks. They are converted when they are
 * read, by paired readings of both clocks (base/clock_history.h). stepaf_clock_keep takes these
 * readings where transports look for dead peers; readers of stamps take them too.
 *
 * The offset is 0 on the reference's node. On other nodes the offset follows probes (PING and
 * PONG), which stepaf_clock_keep sends ten times a second. base/clock_filter.h holds everything
 * that is known of the clock. */
#ifndef STEPAF_CORE_CLOCK_KEEP_H
#define STEPAF_CORE_CLOCK_KEEP_H

#include "core/ctx.h"

/* Take the first readings. ctx->clock.own is calibrated. */
void stepaf_clock_begin(struct stepaf_ctx *ctx);
/* Do what is due: take a reading, send probes. @a now: ticks. */
void stepaf_clock_keep(struct stepaf_ctx *ctx, uint64_t now);
/* Take a reading if the last one is too old for the newest stamps. Call this before reading
 * stamps. */
void stepaf_clock_refresh(struct stepaf_ctx *ctx);
/* Return nanoseconds of the common clock at @a ticks of this rank. */
int64_t stepaf_clock_common_ns(const struct stepaf_ctx *ctx, uint64_t ticks);
/* Return the maximum difference between this rank's common clock and that of @a peer; -1:
 * unknown. */
int64_t stepaf_clock_bound_ns(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer);

/* Send a probe. Return false if out of memory. */
bool stepaf_clock_ask(struct stepaf_peer *peer);
void stepaf_clock_ping(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_clock_pong(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* Follow the clock of peer @a server from now on, or this rank's own if @a server is negative.
 * @a zero: this rank's own clock is its node's. */
void stepaf_clock_follow(struct stepaf_ctx *ctx, int server, bool zero);

/* Return the common clock's current time. Any thread may call this, without the lock. A line that
 * changed during the read is read again. */
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
