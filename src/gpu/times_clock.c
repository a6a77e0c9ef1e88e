/* SPDX-License-Identifier: Apache-2.0 */
/* Convert times of the GPU's clock to this rank's. Ten times a second a kernel of one thread
 * answers some questions of the host for the time. Each answer is a probe, like those between nodes
 * (base/clock_filter.h), so the clock's rate is found, too. A busy GPU begins the kernel when it
 * can; the kernel then waits a moment for questions, and ends. It does not stay, since a thread
 * that waits for the whole GPU would wait for it. */
#include <sched.h>
#include <stdlib.h>

#include "base/clock_filter.h"
#include "base/log.h"
#include "core/wait.h"
#include "device/gpu.h"
#include "gpu/times_clock.h"

enum {
    EVERY_US = 100000,
    AGAIN_US = 5000, /* if the kernel was not asked while it ran */
    QUESTIONS = 4,
    FIRST_QUESTIONS = 16,
    BEGIN_US = 30,      /* for the kernel to begin, before the host goes on with something else */
    ANSWER_US = 100,    /* for an answer; after that the kernel, or this thread, was descheduled */
    FIRST_US = 2000000, /* for the first comparison, in a commit */
    STAYS_NS = 2000000,
    READ_NS = 100, /* error of the readings of this rank's clock */
    /* How fast the offset becomes uncertain, once the clock's rate is known. */
    RATED_PPM = 20
};

struct page {
    uint32_t asked;
    struct stepaf_timestamp answer __attribute__((aligned(64)));
};

struct stepaf_gpu_clock {
    struct stepaf_clock own; /* never recalibrated: ticks and its ns are the same thing */
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

/* Launch the kernel. Readers of times have not asked for this: a failure is not reported, and is
 * not kept as anybody's last failure. */
static bool launch_clock(struct stepaf_ctx *ctx, struct stepaf_gpu_clock *clock, uint64_t stays_ns)
{
    struct stepaf_clock_args args = {
        .asked = &clock->page->asked,
        .answer = &clock->page->answer,
        .before = clock->n_asked,
        .timeout_ns = stays_ns,
    };
    stepaf_error_t error = *stepaf_last_error();

    clock->page->answer.what = 0;
    ask(clock, clock->n_asked);
    clock->runs = !stepaf_gpu_tell_time(ctx->gpu.device, &args, clock->stream);
    if (!clock->runs)
        (void)stepaf_error_raise(&error);
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

/* Ask one question. Returns false if there is no answer. */
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
    uint64_t gpu_ns = __atomic_load_n(&clock->page->answer.time, __ATOMIC_ACQUIRE);
    if (answer_of(clock) != clock->n_asked) /* the kernel has ended meanwhile */
        return false;
    int64_t half = (own_ns(clock, to) - own_ns(clock, from)) / 2;
    int64_t at = own_ns(clock, from) + half;
    *probe_p = (struct stepaf_clock_probe){
        .at_ns = at,
        .offset_ns = (int64_t)gpu_ns - at,
        .half_ns = half + READ_NS,
    };
    return true;
}

/* The kernel runs: compare the clocks, by the shortest of some probes. */
static void compare_clocks(struct stepaf_ctx *ctx, struct stepaf_gpu_clock *clock, int questions,
                           uint64_t patience)
{
    struct stepaf_clock_probe best = {.half_ns = INT64_MAX}, one;

    for (int i = 0; i < questions && probe_gpu(clock, patience, &one); i++)
        if (one.half_ns < best.half_ns)
            best = one;
    ask(clock, STEPAF_CLOCK_STOP);
    clock->runs = !await_word(clock, STEPAF_CLOCK_STOP, patience);
    if (best.half_ns == INT64_MAX)
        return;
    stepaf_clock_filter_add(&clock->filter, best, 0);
    clock->due = stepaf_ticks() + stepaf_ticks_of_us(ctx, EVERY_US);
    stepaf_log_debug("the GPU's clock is compared within %lld ns, and known within %lld ns",
                     (long long)best.half_ns, (long long)stepaf_gpu_clock_bound_ns(ctx));
}

void stepaf_gpu_clock_keep(struct stepaf_ctx *ctx, uint64_t now)
{
    struct stepaf_gpu_clock *clock = ctx->gpu.clock;
    uint64_t patience = stepaf_ticks_of_us(ctx, ANSWER_US);

    if (!clock || (!clock->runs && (int64_t)(now - clock->due) < 0))
        return;
    if (!clock->runs) {
        clock->due = now + stepaf_ticks_of_us(ctx, EVERY_US);
        if (!launch_clock(ctx, clock, STAYS_NS) ||
            !await_word(clock, clock->n_asked, stepaf_ticks_of_us(ctx, BEGIN_US)))
            return;
    }
    if (answer_of(clock) == clock->n_asked) {
        compare_clocks(ctx, clock, QUESTIONS, patience);
    } else if (answer_of(clock) == STEPAF_CLOCK_STOP) {
        clock->runs = false;
        clock->due = now + stepaf_ticks_of_us(ctx, AGAIN_US);
    }
}

/* Compare the clocks for the first time, when nothing is urgent. */
static void compare_first(struct stepaf_ctx *ctx, struct stepaf_gpu_clock *clock)
{
    uint64_t patience = stepaf_ticks_of_us(ctx, FIRST_US);

    if (launch_clock(ctx, clock, (uint64_t)FIRST_US * 1000) &&
        await_word(clock, clock->n_asked, patience))
        compare_clocks(ctx, clock, FIRST_QUESTIONS, patience);
    else
        ask(clock, STEPAF_CLOCK_STOP);
    if (!clock->filter.known)
        stepaf_log_warn("the GPU has not reported its clock: until it does, streams have no times");
}

stepaf_status_t stepaf_gpu_clock_begin(struct stepaf_ctx *ctx)
{
    struct stepaf_gpu_clock *clock = ctx->gpu.clock;
    stepaf_status_t status;

    if (clock)
        return STEPAF_OK;
    clock = calloc(1, sizeof(*clock));
    if (!clock)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    clock->own = ctx->clock.own;
    clock->n_asked = 1;
    clock->due = stepaf_ticks();
    ctx->gpu.clock = clock;
    status = stepaf_gpu_alloc_host(ctx->gpu.device, sizeof(*clock->page), (void **)&clock->page);
    if (!status)
        status = stepaf_gpu_stream_create(ctx->gpu.device, &clock->stream);
    if (status)
        stepaf_gpu_clock_free(ctx);
    else
        compare_first(ctx, clock);
    return status;
}

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
}

bool stepaf_gpu_clock_is_known(const struct stepaf_ctx *ctx)
{
    return ctx->gpu.clock && ctx->gpu.clock->filter.known;
}

uint64_t stepaf_gpu_clock_ticks(const struct stepaf_ctx *ctx, uint64_t time)
{
    const struct stepaf_gpu_clock *clock = ctx->gpu.clock;
    int64_t at = own_ns(clock, stepaf_ticks());
    uint64_t now = (uint64_t)(at + stepaf_clock_filter_offset(&clock->filter, at));
    int unused = 64 - STEPAF_TIMESTAMP_TIME_BITS;
    int64_t gpu_ns = (int64_t)now + ((int64_t)((time - now) << unused) >> unused);

    for (int i = 0; i < 2; i++) /* the offset at that time, not now */
        at = gpu_ns - stepaf_clock_filter_offset(&clock->filter, at);
    return clock->own.base_ticks +
           (uint64_t)(int64_t)((double)(at - clock->own.base_ns) / clock->own.ns_per_tick);
}

int64_t stepaf_gpu_clock_bound_ns(const struct stepaf_ctx *ctx)
{
    const struct stepaf_clock_filter *filter = &ctx->gpu.clock->filter;
    int64_t since = own_ns(ctx->gpu.clock, stepaf_ticks()) - filter->at_ns;
    int ppm = filter->is_rated ? RATED_PPM : STEPAF_CLOCK_DRIFT_PPM;

    return (filter->high_ns - filter->low_ns) / 2 + since / 1000000 * ppm + 1;
}
