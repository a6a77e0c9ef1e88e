/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: a thread spins, then gives up its core, then sleeps between polls. Where ranks outnumber
 * cores, a thread does not spin: the peer that it waits for may need the same core. */
#include <poll.h>
#include <sched.h>
#include <time.h>

#include "base/interrupt.h"
#include "boot/member_net.h"
#include "core/clock_keep.h"
#include "core/ctx.h"
#include "core/feature.h"
#include "core/lock.h"
#include "core/mesh.h"
#include "core/metrics.h"
#include "core/news.h"
#include "core/peer.h"
#include "core/progress.h"
#include "core/trace_signal.h"
#include "core/wait.h"
#include "core/watch.h"

enum {
    CROWDED_POLLS = 2, /* polls before the core is given up, where ranks outnumber cores */
    /* interval of looks for dead peers, when nothing has arrived for as long */
    LOOK_EVERY_US = 1000,
    LOOK_BUSY_US = 100000, /* the same while other peers keep this rank busy */
    BUSY_POLLS_MASK = 63,  /* non-vain polls check the deadline this often */
    SLEEP_NS = 50000,
    SLEEP_LEFT_US = 100,     /* a wait that ends sooner does not sleep: the kernel wakes late */
    SLEEP_LONG_NS = 1000000, /* where all transports wake the sleeper */
    WAKE_FDS = 16,
    REPORTS = 16 /* lost ranks taken from the bootstrap at a time */
};

/* Longer times are capped to this: decades. Far enough from a wrap to be added to a stamp. */
static const double TICKS_MAX = (double)(INT64_MAX / 4);

int64_t stepaf_timeout_us(const struct stepaf_ctx *ctx, int64_t timeout_us)
{
    return timeout_us < 0 ? ctx->env.timeout_us : timeout_us;
}

uint64_t stepaf_ticks_of_us(const struct stepaf_ctx *ctx, int64_t us)
{
    double ticks = (double)us * ctx->clock.own.ticks_per_us;

    return ticks < TICKS_MAX ? (uint64_t)ticks : (uint64_t)TICKS_MAX;
}

/* Note the loss of a rank that is no peer: only the members' next agreement uses it. */
static void note_reported(struct stepaf_ctx *ctx, int rank)
{
    if (rank >= 0 && rank < ctx->job.boot.size && ctx->job.members.net)
        stepaf_member_net_lose(ctx->job.members.net, rank, "the bootstrap reports that it died");
}

/* Return whether another process has taken a rank's place. The bootstrap knows nothing of that
 * process. */
static bool has_returned(const struct stepaf_ctx *ctx, int rank)
{
    return rank >= 0 && rank < ctx->job.boot.size && ctx->job.members.net &&
           stepaf_member_net_consensus(ctx->job.members.net)->lives[rank] > 1;
}

/* Ask the bootstrap which ranks the launcher reports lost. Reports before there are links would be
 * forgotten, so this waits for the first epoch. */
static void ask_launcher(struct stepaf_ctx *ctx)
{
    int ranks[REPORTS];
    int n = ctx->job.boot.lost && ctx->epoch
                ? ctx->job.boot.lost(ctx->job.boot.self, ranks, REPORTS)
                : 0;

    for (int i = 0; i < n; i++) {
        if (has_returned(ctx, ranks[i]))
            continue;
        if (ranks[i] < 0 || ranks[i] >= ctx->job.boot.size ||
            ctx->job.ranks[ranks[i]].role == ctx->role) {
            note_reported(ctx, ranks[i]);
            continue;
        }
        uint32_t rank = ctx->job.ranks[ranks[i]].rank;
        if (!stepaf_mesh_has(&ctx->job.mesh, rank)) {
            note_reported(ctx, ranks[i]);
            continue;
        }
        struct stepaf_peer *peer = &ctx->peers[stepaf_mesh_index(&ctx->job.mesh, rank)];
        if (peer->link)
            stepaf_peer_fail(peer, "the bootstrap reports that it died");
    }
}

/* Let the transports look for dead peers, if they have not done so for a while. */
static void find_dead_peers(struct stepaf_ctx *ctx, uint64_t now)
{
    if (now - ctx->polling.checked < stepaf_ticks_of_us(ctx, LOOK_EVERY_US))
        return;
    ctx->polling.checked = now;
    stepaf_clock_keep(ctx, now);
    ctx->feature->refresh(ctx);
    stepaf_metrics_keep(ctx, now);
    stepaf_trace_signal_look(ctx);
    for (unsigned i = 0; i < ctx->net.n_transports; i++)
        ctx->net.transports[i]->ops->check_peers(ctx->net.transports[i]);
    ask_launcher(ctx);
    if (ctx->job.members.net)
        stepaf_member_net_pump(ctx->job.members.net);
    stepaf_core_notice_lost(ctx);
    ctx->up.polled = 0; /* this takes a while, in which the thread may lose its core */
}

void stepaf_core_look_for_lost(struct stepaf_ctx *ctx)
{
    find_dead_peers(ctx, stepaf_ticks());
}

/* Return whether the polls before the last one were vain, as vain_since says. */
static bool has_found_nothing(const struct stepaf_ctx *ctx)
{
    return (int64_t)(ctx->polling.vain_since - ctx->polling.came) > 0;
}

/* Check that peers are alive, if it is time to. */
static __attribute__((noinline)) void see_who_lives(struct stepaf_ctx *ctx, uint64_t now,
                                                    bool has_come)
{
    if (!has_come && !has_found_nothing(ctx))
        ctx->polling.vain_since = now;
    if ((!has_come && now - ctx->polling.vain_since >= stepaf_ticks_of_us(ctx, LOOK_EVERY_US)) ||
        now - ctx->polling.checked >= stepaf_ticks_of_us(ctx, LOOK_BUSY_US))
        find_dead_peers(ctx, now);
}

/* Do what is due in a watched context. */
static __attribute__((noinline)) void see_what_is_due(struct stepaf_ctx *ctx, uint64_t now,
                                                      bool has_come)
{
    struct stepaf_watch *watch = ctx->polling.watch;

    if ((int64_t)(now - watch->look_due) >= 0)
        watch->ops->look(watch, now);
    if ((int64_t)(now - watch->live_due) >= 0) {
        watch->live_due = now + stepaf_ticks_of_us(ctx, LOOK_EVERY_US);
        see_who_lives(ctx, now, has_come);
    }
    ctx->polling.look_at =
        (int64_t)(watch->look_due - watch->live_due) < 0 ? watch->look_due : watch->live_due;
}

void stepaf_core_check_liveness(struct stepaf_ctx *ctx, uint64_t now, bool has_come)
{
    if (ctx->polling.watch) {
        see_what_is_due(ctx, now, has_come);
        return;
    }
    ctx->polling.look_at = now + stepaf_ticks_of_us(ctx, LOOK_EVERY_US);
    see_who_lives(ctx, now, has_come);
}

void stepaf_core_note_vain(struct stepaf_ctx *ctx, uint64_t now)
{
    struct stepaf_watch *watch = ctx->polling.watch;

    if (now - watch->noted < watch->note_each)
        return;
    stepaf_watch_poll(watch, now, has_found_nothing(ctx) ? watch->noted : ctx->polling.came);
    if (!has_found_nothing(ctx))
        ctx->polling.vain_since = now;
}

/* Arm the transports to wake this thread when something arrives. Return the number of file
 * descriptors. @a all: set if every transport does, and no post waits for space or for a GPU, which
 * would wake nobody. */
static unsigned arm(struct stepaf_ctx *ctx, struct pollfd *polls, bool *all)
{
    int fds[WAKE_FDS];
    unsigned n = 0;

    *all = stepaf_list_empty(&ctx->net.queued) && !ctx->n_polled;
    for (unsigned i = 0; i < ctx->net.n_transports; i++) {
        struct stepaf_transport *transport = ctx->net.transports[i];
        unsigned more = transport->ops->arm(transport, fds + n, WAKE_FDS - n);
        *all = *all && more;
        n += more;
    }
    for (unsigned i = 0; i < n; i++)
        polls[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    return n;
}

/* Release the lock while its holder has nothing to do, except in a commit. Return whether the lock
 * was released. */
static bool step_out(struct stepaf_ctx *ctx)
{
    bool leaves = !ctx->commit.exclusive;

    if (leaves)
        stepaf_lock_leave(&ctx->lock);
    return leaves;
}

static void step_in(struct stepaf_ctx *ctx, bool has_left)
{
    if (has_left)
        stepaf_lock_enter(&ctx->lock);
}

/* Return the length of a sleep that nothing can end: the shortest that pays. A commit that has
 * already waited is not in a hurry: its sleeps grow, and add at most an eighth to its wait. */
static long sleep_ns(const struct stepaf_ctx *ctx, uint64_t waited)
{
    long most_ns = SLEEP_NS;

    if (ctx->commit.exclusive)
        while (most_ns < SLEEP_LONG_NS && waited > stepaf_ticks_of_us(ctx, most_ns / 1000 * 16))
            most_ns *= 2;
    return most_ns < SLEEP_LONG_NS ? most_ns : SLEEP_LONG_NS;
}

/* Shorten a sleep that would end after the deadline. */
static long until_deadline_ns(const struct stepaf_ctx *ctx, const struct stepaf_waiter *waiter,
                              uint64_t now, long sleep_ns)
{
    double left_ns = (double)(waiter->deadline - now) / ctx->clock.own.ticks_per_us * 1000;

    return left_ns < (double)sleep_ns ? (long)left_ns : sleep_ns;
}

/* Sleep without the lock, until a transport wakes this thread, but not for long. Only one thread
 * arms the transports; others that sleep at the same time only sleep. If another thread consumed
 * the wake-up of this one, this one would sleep on. */
__attribute__((noinline)) static void sleep_for(struct stepaf_ctx *ctx,
                                                const struct stepaf_waiter *waiter, uint64_t now)
{
    struct pollfd polls[WAKE_FDS];
    bool all = false;
    long for_ns = sleep_ns(ctx, now - waiter->began);
    unsigned n = ctx->polling.asleep ? 0 : arm(ctx, polls, &all);

    ctx->up.polled = 0; /* arming takes system calls: new arrivals are later than the last stamp */
    if (n && stepaf_core_progress(ctx))
        return; /* something arrived before the transports were armed */
    if (n)
        ctx->polling.asleep = true;
    for_ns = until_deadline_ns(ctx, waiter, now, n && all ? SLEEP_LONG_NS : for_ns);
    bool has_left = step_out(ctx);
    if (n)
        (void)ppoll(polls, n, &(struct timespec){0, for_ns}, NULL);
    else
        nanosleep(&(struct timespec){0, for_ns}, NULL);
    step_in(ctx, has_left);
    if (n)
        ctx->polling.asleep = false;
}

/* Do nothing for a moment, without the lock. What is left of a short wait is no time to sleep. */
static void pause_for(struct stepaf_ctx *ctx, const struct stepaf_waiter *waiter, uint64_t now)
{
    const struct stepaf_env *env = &ctx->env;
    bool spins = env->backoff == STEPAF_ENV_BACKOFF_spin ||
                 (!ctx->polling.oversubscribed &&
                  now - waiter->began < stepaf_ticks_of_us(ctx, env->spin_us));
    bool sleeps = env->backoff != STEPAF_ENV_BACKOFF_yield &&
                  now - waiter->idle_since >= stepaf_ticks_of_us(ctx, env->sleep_after_us) &&
                  waiter->deadline - now > stepaf_ticks_of_us(ctx, SLEEP_LEFT_US);

    if (!spins)
        ctx->counters.yields++;
    if (!spins && sleeps) {
        sleep_for(ctx, waiter, now);
    } else {
        bool has_left = step_out(ctx);
        if (spins)
            stepaf_cpu_relax();
        else
            sched_yield();
        step_in(ctx, has_left);
    }
    if (!spins)
        ctx->up.polled = 0;
}

/* Return how long the wait that begins has idled already: a caller that waits again and again, each
 * time for a moment, idles as long as in one wait. Not so if something has come since the last one
 * timed out, or the caller was away for longer than it had idled. */
static uint64_t idled_before(const struct stepaf_ctx *ctx, uint64_t now)
{
    uint64_t away = now - ctx->polling.timed_out_at;
    bool has_come = (int64_t)(ctx->polling.came - ctx->polling.timed_out_at) > 0;

    return has_come || away > ctx->polling.idle_for ? 0 : ctx->polling.idle_for;
}

/* Note how long a wait that times out has idled: since something has last come. */
static void note_time_out(struct stepaf_ctx *ctx, const struct stepaf_waiter *waiter, uint64_t now)
{
    bool has_come = (int64_t)(ctx->polling.came - waiter->idle_since) > 0;

    ctx->polling.timed_out_at = now;
    ctx->polling.idle_for = now - (has_come ? ctx->polling.came : waiter->idle_since);
}

/* Return whether the deadline, which counts from the first clock reading, has passed. */
static bool deadline_passed(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter,
                            int64_t timeout_us, uint64_t now)
{
    if (!waiter->began) {
        waiter->began = now;
        waiter->idle_since = now - idled_before(ctx, now);
        waiter->deadline = now + stepaf_ticks_of_us(ctx, stepaf_timeout_us(ctx, timeout_us));
    }
    return (int64_t)(now - waiter->deadline) >= 0;
}

/* Return whether another thread finalizes: then a wait ends immediately, as if its deadline had
 * passed. */
static bool is_closing(const struct stepaf_ctx *ctx)
{
    return __builtin_expect(atomic_load_explicit(&ctx->threads.closing, memory_order_relaxed), 0);
}

bool stepaf_waiter_busy(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t timeout_us)
{
    if ((++waiter->busy & BUSY_POLLS_MASK) != 0)
        return true;
    if (is_closing(ctx))
        return false;
    return timeout_us && !deadline_passed(ctx, waiter, timeout_us, stepaf_ticks());
}

bool stepaf_waiter_idle(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t timeout_us)
{
    if (timeout_us == 0 || is_closing(ctx))
        return false;
    if (ctx->polling.oversubscribed && waiter->polls++ < CROWDED_POLLS)
        return true;
    uint64_t now = stepaf_ticks();
    bool over = deadline_passed(ctx, waiter, timeout_us, now);
    ctx->up.polled = now;
    /* Make no system call before the wait has become long: the peer may only be computing. */
    if (over || now - waiter->began >= stepaf_ticks_of_us(ctx, LOOK_EVERY_US))
        find_dead_peers(ctx, now);
    if (over) {
        ctx->up.polled = 0;
        note_time_out(ctx, waiter, now);
        return false;
    }
    pause_for(ctx, waiter, now);
    return true;
}

void stepaf_waiter_away(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t timeout_us)
{
    (void)deadline_passed(ctx, waiter, timeout_us, stepaf_ticks());
    waiter->polls = CROWDED_POLLS;
    waiter->busy = UINT32_MAX;
}

bool stepaf_core_advance(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t deadline_ns)
{
    int64_t left_us = (deadline_ns - stepaf_monotonic_ns()) / 1000;

    if (left_us <= 0 || stepaf_interrupted())
        return false;
    if (!stepaf_core_progress(ctx))
        return stepaf_waiter_idle(ctx, waiter, left_us);
    *waiter = stepaf_waiter_begin(); /* sleeps become short again: more is likely to arrive */
    return true;
}

void stepaf_core_flush(struct stepaf_ctx *ctx, int64_t timeout_us)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    bool more = true;

    while (more && !stepaf_list_empty(&ctx->net.queued) && !stepaf_interrupted())
        more = stepaf_core_progress(ctx) ? stepaf_waiter_busy(ctx, &waiter, timeout_us)
                                         : stepaf_waiter_idle(ctx, &waiter, timeout_us);
}
