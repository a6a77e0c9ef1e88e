/* SPDX-License-Identifier: Apache-2.0 */
/* How a thread waits. */
#ifndef STEPAF_CORE_WAIT_H
#define STEPAF_CORE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct stepaf_ctx;

struct stepaf_waiter {
    uint64_t began;    /* ticks; 0: not yet */
    uint64_t deadline; /* ticks */
    uint32_t polls;    /* in vain */
    uint32_t busy;     /* other polls */
};
static inline struct stepaf_waiter stepaf_waiter_begin(void)
{
    return (struct stepaf_waiter){0};
}
/* One vain poll is over: idle as the settings say. False when the deadline has passed. The lock is
 * held on entry and exit, and free for a while in between unless the context is exclusive. */
bool stepaf_waiter_idle(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t timeout_us);
/* Something happened, but not what is waited for. False when the deadline has passed. */
bool stepaf_waiter_busy(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t timeout_us);
/* What follows may take long: the deadline counts from before it, and is checked after it. */
void stepaf_waiter_away(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t timeout_us);
/* Microseconds that @a timeout_us stands for. */
int64_t stepaf_timeout_us(const struct stepaf_ctx *ctx, int64_t timeout_us);
/* Ticks in @a us, limited to decades. */
uint64_t stepaf_ticks_of_us(const struct stepaf_ctx *ctx, int64_t us);
/* Make progress for set-up, which may idle. False when @a deadline_ns has passed. */
bool stepaf_core_advance(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t deadline_ns);
/* Send what is queued, as far as peers accept it in time. */
void stepaf_core_flush(struct stepaf_ctx *ctx, int64_t timeout_us);

/* A poll is over, which has found something or not, and look_at has passed: look for dead peers, if
 * that is due. */
void stepaf_core_check_liveness(struct stepaf_ctx *ctx, uint64_t now, bool has_come)
    __attribute__((cold));
/* A vain poll of a watched context is over: note it, now and then. */
void stepaf_core_note_vain(struct stepaf_ctx *ctx, uint64_t now);
/* Look immediately for ranks that have ended, and take in what members say, if that was not done
 * within the last millisecond. */
void stepaf_core_look_for_lost(struct stepaf_ctx *ctx);

#endif
