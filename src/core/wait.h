/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: backoff, deadlines, and looking for dead peers meanwhile. */
#ifndef STEPAF_CORE_WAIT_H
#define STEPAF_CORE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct stepaf_ctx;

struct stepaf_waiter {
    uint64_t began;      /* ticks; 0: not started */
    uint64_t deadline;   /* ticks */
    uint64_t idle_since; /* ticks: began, or earlier by the waits that have timed out before */
    uint32_t polls;      /* vain polls */
    uint32_t busy;       /* polls that brought something else */
};
static inline struct stepaf_waiter stepaf_waiter_begin(void)
{
    return (struct stepaf_waiter){0};
}
/* Idle after a vain poll, as the settings say. Return false when the deadline has passed. The lock
 * is held on entry and exit, and released for a while in between unless the context is
 * exclusive. */
bool stepaf_waiter_idle(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t timeout_us);
/* Note that something happened, but not what the caller waits for. Return false when the deadline
 * has passed. */
bool stepaf_waiter_busy(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t timeout_us);
/* Announce an action that may take long: the deadline counts from before the action, and is checked
 * after it. */
void stepaf_waiter_away(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t timeout_us);
/* Return the microseconds that @a timeout_us stands for. */
int64_t stepaf_timeout_us(const struct stepaf_ctx *ctx, int64_t timeout_us);
/* Return the ticks in @a us, capped at decades. */
uint64_t stepaf_ticks_of_us(const struct stepaf_ctx *ctx, int64_t us);
/* Make progress for set-up, which may idle. Return false when @a deadline_ns has passed. */
bool stepaf_core_advance(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t deadline_ns);
/* Send queued posts, as far as peers accept them in time. */
void stepaf_core_flush(struct stepaf_ctx *ctx, int64_t timeout_us);

/* Look for dead peers, if it is time to. Called after a poll, vain or not, once look_at has
 * passed. */
void stepaf_core_check_liveness(struct stepaf_ctx *ctx, uint64_t now, bool has_come)
    __attribute__((cold));
/* Note a vain poll of a watched context, now and then. */
void stepaf_core_note_vain(struct stepaf_ctx *ctx, uint64_t now);
/* Look immediately for ranks that have ended, and take in what members say, unless that was done
 * within the last millisecond. */
void stepaf_core_look_for_lost(struct stepaf_ctx *ctx);

#endif
