/* SPDX-License-Identifier: Apache-2.0 */
/* From the GPU's clock to this rank's. Once a second a kernel of one thread answers the host some times
 * with what time it is. Each answer is a probe, as those between nodes are (base/clock_filter.h): so the
 * clock's rate is found, too, and a GPU that is busy for a while is waited for. */
#include <sched.h>
#include <stdlib.h>

#include "base/clock_filter.h"
#include "base/log.h"
#include "core/wait.h"
#include "device/gpu.h"
#include "gpu/times_clock.h"

enum {
    EVERY_US = 1000000,
    QUESTIONS = 16,
    ANSWER_US = 100,   /* for the kernel to begin, and to answer: else the GPU is too busy now */
    FIRST_US = 500000, /* the same in the commit that begins with it */
    KERNEL_NS = 1000000000, /* for which the kernel stays by itself */
    READ_NS = 100           /* of the readings of this rank's clock */
};

struct page {
    uint32_t asked;
    struct stepaf_timestamp answer __attribute__((aligned(64)));
};

struct stepaf_gpu_clock {
    struct stepaf_clock own; /* never calibrated anew: ticks and its ns are the same thing */
    struct stepaf_clock_filter filter;
    struct page *page; /* pinned */
    void *stream;
    uint64_t due; /* ticks */
    uint32_t n_asked;
    bool runs; /* the kernel is enqueued, and has not said that it is over */
};

static uint64_t answer_of(const struct stepaf_gpu_clock *clock)
{
    return __atomic_load_n(&clock->page->answer.what, __ATOMIC_ACQUIRE);
}

static void ask(struct stepaf_gpu_clock *clock, uint32_t n)
{
    __atomic_store_n(&clock->page->asked, n, __ATOMIC_RELEASE);
}

static bool launch_clock(struct stepaf_ctx *ctx, struct stepaf_gpu_clock *clock)
{
    struct stepaf_clock_args args = {
        .asked = &clock->page->asked,
        .answer = &clock->page->answer,
        .before = clock->n_asked,
        .timeout_ns = KERNEL_NS,
    };

    clock->page->answer.what = 0;
    ask(clock, clock->n_asked);
    clock->runs = !stepaf_gpu_tell_time(ctx->gpu.device, &args, clock->stream);
    return clock->runs;
}

static int64_t own_ns(const struct stepaf_gpu_clock *clock, uint64_t ticks)
{
    return stepaf_clock_to_ns(&clock->own, ticks);
}

/* Wait until the kernel has said @a what. */
static bool await_word(const struct stepaf_gpu_clock *clock, uint64_t what, uint64_t patience)
{
    uint64_t from = stepaf_ticks(), waited = 0;

    while (answer_of(clock) != what && waited < patience) {
        if (waited > patience / 4)
            (void)sched_yield();
        else
            stepaf_cpu_relax();
        waited = stepaf_ticks() - from;
    }
    return answer_of(clock) == what;
}

/* One question. False: no answer. */
static bool probe_gpu(struct stepaf_gpu_clock *clock, uint64_t patience,
                      struct stepaf_clock_probe *probe_p)
{
    uint64_t from, to;

    if (++clock->n_asked == STEPAF_CLOCK_STOP)
        clock->n_asked = 1;
    from = stepaf_ticks();
    ask(clock, clock->n_asked);
    if (!await_word(clock, clock->n_asked, patience))
        return false;
    to = stepaf_ticks();
    int64_t half = (own_ns(clock, to) - own_ns(clock, from)) / 2;
    int64_t at = own_ns(clock, from) + half;
    *probe_p = (struct stepaf_clock_probe){
        .at_ns = at,
        .offset_ns = (int64_t)clock->page->answer.time_ns - at,
        .half_ns = half + READ_NS,
    };
    return true;
}

/* Compare the clocks: the shortest of some probes. The kernel does not stay behind, where it would be waited
 * for by whoever waits for the whole GPU: one that has found no place in time ends as soon as it has. */
static void compare_clocks(struct stepaf_ctx *ctx, struct stepaf_gpu_clock *clock,
                           int64_t patience_us)
{
    uint64_t patience = stepaf_ticks_of_us(ctx, patience_us);
    struct stepaf_clock_probe best = {.half_ns = INT64_MAX}, one;

    if (!launch_clock(ctx, clock))
        return;
    if (await_word(clock, clock->n_asked, patience))
        for (int i = 0; i < QUESTIONS && probe_gpu(clock, patience, &one); i++)
            if (one.half_ns < best.half_ns)
                best = one;
    ask(clock, STEPAF_CLOCK_STOP);
    if (best.half_ns == INT64_MAX)
        return;
    clock->runs = !await_word(clock, STEPAF_CLOCK_STOP, patience);
    stepaf_clock_filter_add(&clock->filter, best, 0);
    stepaf_log_debug("the GPU's clock is compared to %lld ns, and known to %lld ns",
                     (long long)best.half_ns, (long long)stepaf_gpu_clock_bound_ns(ctx));
}

static void compare_if_due(struct stepaf_ctx *ctx, struct stepaf_gpu_clock *clock, uint64_t now,
                           int64_t patience_us)
{
    if ((int64_t)(now - clock->due) < 0)
        return;
    if (clock->runs && answer_of(clock) != STEPAF_CLOCK_STOP)
        return;
    clock->due = now + stepaf_ticks_of_us(ctx, EVERY_US);
    compare_clocks(ctx, clock, patience_us);
}

void stepaf_gpu_clock_keep(struct stepaf_ctx *ctx, uint64_t now)
{
    if (ctx->gpu.clock)
        compare_if_due(ctx, ctx->gpu.clock, now, ANSWER_US);
}

stepaf_status_t stepaf_gpu_clock_begin(struct stepaf_ctx *ctx)
{
    struct stepaf_gpu_clock *clock = ctx->gpu.clock;
    stepaf_status_t status = STEPAF_OK;

    if (!clock) {
        clock = calloc(1, sizeof(*clock));
        if (!clock)
            return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        clock->own = ctx->clock.own;
        clock->n_asked = 1;
        clock->due = stepaf_ticks();
        ctx->gpu.clock = clock;
        ctx->n_polled++;
        status =
            stepaf_gpu_alloc_host(ctx->gpu.device, sizeof(*clock->page), (void **)&clock->page);
        if (!status)
            status = stepaf_gpu_stream_create(ctx->gpu.device, &clock->stream);
        if (status) {
            stepaf_gpu_clock_free(ctx);
            return status;
        }
    }
    if (!clock->filter.known)
        compare_if_due(ctx, clock, stepaf_ticks(), FIRST_US);
    return STEPAF_OK;
}

/* The kernel ends by itself if it is not asked to: the stream is destroyed behind it. */
void stepaf_gpu_clock_free(struct stepaf_ctx *ctx)
{
    struct stepaf_gpu_clock *clock = ctx->gpu.clock;

    if (!clock)
        return;
    if (clock->runs) {
        ask(clock, STEPAF_CLOCK_STOP);
        (void)stepaf_gpu_stream_sync(ctx->gpu.device, clock->stream);
    }
    if (clock->stream)
        stepaf_gpu_stream_destroy(ctx->gpu.device, clock->stream);
    if (clock->page)
        stepaf_gpu_free_host(ctx->gpu.device, clock->page);
    free(clock);
    ctx->gpu.clock = NULL;
    ctx->n_polled--;
}

bool stepaf_gpu_clock_is_known(const struct stepaf_ctx *ctx)
{
    return ctx->gpu.clock && ctx->gpu.clock->filter.known;
}

uint64_t stepaf_gpu_clock_ticks(const struct stepaf_ctx *ctx, uint64_t gpu_ns)
{
    const struct stepaf_gpu_clock *clock = ctx->gpu.clock;
    int64_t at = own_ns(clock, stepaf_ticks());

    for (int i = 0; i < 2; i++) /* the offset of then, not of now */
        at = (int64_t)gpu_ns - stepaf_clock_filter_offset(&clock->filter, at);
    return clock->own.base_ticks +
           (uint64_t)(int64_t)((double)(at - clock->own.base_ns) / clock->own.ns_per_tick);
}

int64_t stepaf_gpu_clock_bound_ns(const struct stepaf_ctx *ctx)
{
    int64_t low, high;

    stepaf_clock_filter_range(&ctx->gpu.clock->filter, own_ns(ctx->gpu.clock, stepaf_ticks()), &low,
                              &high);
    return (high - low) / 2;
}
