/* SPDX-License-Identifier: Apache-2.0 */
/* Time keeping between commits: readings, probes, conversion of stamps, error bounds. */
#include "core/clock_keep.h"
#include "core/send.h"

enum {
    READING_TRIES = 4,
    READING_EVERY_US = 100000, /* in stepaf_clock_keep, off the hot path */
    READING_FRESH_US = 10000,  /* for readers of stamps */
    READING_WIDE_NS = 2000,    /* a wider reading was interrupted: better none, for a while */
    READING_LATE_US = 1000000,
    PROBE_EVERY_US = 100000,
    PROBE_FIRST_US = 20000, /* interval of probes to the followed clock while probes are few */
    PROBE_FEW = 100,
    PROBE_TURNS = 16,   /* all peers learn this clock's bound once in so many probes */
    BOUND_NS = 1000,    /* error of a stamp against its own node's clock */
    PROBE_READ_NS = 200 /* error of the two readings of a probe */
};

/* Stands for the bound of a clock that has not reported one. */
static const int64_t UNKNOWN_NS = INT64_MAX / 8;

static uint64_t word64(const struct stepaf_msg *msg, int at)
{
    return msg->word[at] | (uint64_t)msg->word[at + 1] << 32;
}

static void put_word64(struct stepaf_msg *msg, int at, uint64_t value)
{
    msg->word[at] = (uint32_t)value;
    msg->word[at + 1] = (uint32_t)(value >> 32);
}

static uint64_t ticks_in(const struct stepaf_ctx *ctx, int64_t us)
{
    return (uint64_t)((double)us * ctx->clock.own.ticks_per_us);
}

/* Return roughly the nanoseconds of @a ticks. */
static int64_t rough_ns(const struct stepaf_ctx *ctx, uint64_t ticks)
{
    return (int64_t)((double)ticks * ctx->clock.own.ns_per_tick);
}

/* Return the ticks after which the last reading is too old: @a us, or less at first, while the rate
 * is not known well. */
static uint64_t due_after(const struct stepaf_ctx *ctx, int64_t us)
{
    uint64_t ticks = ticks_in(ctx, us);
    uint64_t span = stepaf_clock_history_span(&ctx->clock.history);

    return span < ticks ? span : ticks;
}

static void take_reading(struct stepaf_ctx *ctx)
{
    struct stepaf_ctx_clock *clock = &ctx->clock;
    const struct stepaf_clock_point *first = &clock->history.points[0], *last;
    struct stepaf_clock_sample sample = stepaf_clock_read(READING_TRIES);

    last = stepaf_clock_history_last(&clock->history);
    if (rough_ns(ctx, sample.width) > READING_WIDE_NS &&
        sample.ticks - last->ticks < ticks_in(ctx, READING_LATE_US))
        return;
    stepaf_clock_history_add(&clock->history,
                             (struct stepaf_clock_point){
                                 .ticks = sample.ticks,
                                 .ns = sample.ns,
                                 .offset_ns = stepaf_clock_line_at(&clock->line, sample.ns),
                             });
    last = stepaf_clock_history_last(&clock->history);
    double rate = (double)(last->ns - first->ns) / (double)(last->ticks - first->ticks);
    clock->ns_scale = (uint64_t)(rate * (1 << STEPAF_NS_SCALE_BITS));
}

void stepaf_clock_begin(struct stepaf_ctx *ctx)
{
    struct stepaf_ctx_clock *clock = &ctx->clock;
    struct stepaf_clock_sample first = stepaf_clock_first();

    clock->server = -1;
    clock->history.n = 0;
    stepaf_clock_history_add(&clock->history,
                             (struct stepaf_clock_point){first.ticks, first.ns, 0});
    stepaf_clock_history_add(
        &clock->history, (struct stepaf_clock_point){clock->own.base_ticks, clock->own.base_ns, 0});
    clock->ns_scale = (uint64_t)(clock->own.ns_per_tick * (1 << STEPAF_NS_SCALE_BITS));
}

/* Continue with a new line from the last reading. A concurrent reader sees that the version is odd
 * or has changed: each field is stored after the version became odd. */
static void set_line(struct stepaf_ctx *ctx, struct stepaf_clock_line line)
{
    struct stepaf_clock_history *history = &ctx->clock.history;
    struct stepaf_clock_point *last = &history->points[history->n - 1];
    struct stepaf_clock_told *told = &ctx->clock.told;
    uint32_t version = atomic_load_explicit(&told->version, memory_order_relaxed);

    ctx->clock.line = line;
    last->offset_ns = stepaf_clock_line_at(&line, last->ns);
    atomic_store_explicit(&told->version, version + 1, memory_order_relaxed);
    atomic_store_explicit(&told->at_ns, line.at_ns, memory_order_release);
    atomic_store_explicit(&told->offset_ns, line.offset_ns, memory_order_release);
    atomic_store_explicit(&told->rate, line.rate, memory_order_release);
    atomic_store_explicit(&told->slew_ns, line.slew_ns, memory_order_release);
    atomic_store_explicit(&told->slew_over_ns, line.slew_over_ns, memory_order_release);
    atomic_store_explicit(&told->version, version + 2, memory_order_release);
}

/* Continue as the filter says, from a reading that ends the previous line and begins the next one.
 * As long as nobody uses this clock yet, the line jumps: the first probe may have been a bad
 * one. */
static void turn(struct stepaf_ctx *ctx)
{
    struct stepaf_ctx_clock *clock = &ctx->clock;
    struct stepaf_clock_line line = clock->known ? clock->line : (struct stepaf_clock_line){0};

    take_reading(ctx);
    set_line(ctx, stepaf_clock_line_to(&line, &clock->filter, stepaf_monotonic_ns()));
}

void stepaf_clock_follow(struct stepaf_ctx *ctx, int server, bool zero)
{
    struct stepaf_ctx_clock *clock = &ctx->clock;

    if (clock->server != server) {
        clock->filter = (struct stepaf_clock_filter){0};
        clock->n_probes = 0;
    }
    clock->server = server;
    clock->greets = true;
    clock->probed = stepaf_ticks() - ticks_in(ctx, PROBE_EVERY_US);
    if (server < 0 && zero)
        set_line(ctx, (struct stepaf_clock_line){0});
    for (uint32_t p = 0; p < ctx->n_peers; p++)
        ctx->peers[p].clock.asked = false;
}

void stepaf_clock_refresh(struct stepaf_ctx *ctx)
{
    const struct stepaf_clock_point *last = stepaf_clock_history_last(&ctx->clock.history);

    if (stepaf_ticks() - last->ticks >= due_after(ctx, READING_FRESH_US))
        take_reading(ctx);
}

int64_t stepaf_clock_common_ns(const struct stepaf_ctx *ctx, uint64_t ticks)
{
    const struct stepaf_clock_history *history = &ctx->clock.history;
    struct stepaf_clock_point point = stepaf_clock_history_at(history, ticks);

    if ((int64_t)(ticks - stepaf_clock_history_last(history)->ticks) >= 0)
        point.offset_ns = stepaf_clock_line_at(&ctx->clock.line, point.ns);
    return point.ns + point.offset_ns;
}

/* Return the maximum error of this rank's common clock; -1: unknown. @a for_peer: the maximum that
 * it can reach if time does nothing: anywhere in the range. */
static int64_t own_bound_ns(const struct stepaf_ctx *ctx, bool for_peer)
{
    const struct stepaf_ctx_clock *clock = &ctx->clock;
    int64_t low, high, now = stepaf_monotonic_ns();

    if (!clock->known || (clock->server >= 0 && !clock->filter.known))
        return -1;
    if (clock->server < 0)
        return BOUND_NS;
    stepaf_clock_filter_range(&clock->filter, now, &low, &high);
    int64_t offset = stepaf_clock_line_at(&clock->line, now);
    int64_t bound = high - offset > offset - low ? high - offset : offset - low;
    if (for_peer && high - low > bound)
        bound = high - low;
    return bound < UNKNOWN_NS / 2 ? bound + BOUND_NS : -1;
}

/* Return the bound as messages encode it. UINT32_MAX stands for unknown, and for seconds. */
static uint32_t bound_word(const struct stepaf_ctx *ctx)
{
    int64_t bound = own_bound_ns(ctx, true);

    return bound < 0 || bound > UINT32_MAX ? UINT32_MAX : (uint32_t)bound;
}

/* Return whether both ranks use the clock of one node, which is the node of both. */
static bool share_clock(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer)
{
    return ctx->clock.known && ctx->clock.is_nodes &&
           ctx->job.ranks[peer->who.world_rank].node_id ==
               ctx->job.ranks[ctx->job.boot.rank].node_id;
}

int64_t stepaf_clock_bound_ns(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer)
{
    int64_t own = own_bound_ns(ctx, false);

    if (share_clock(ctx, peer))
        return BOUND_NS;
    if (own < 0 || !peer->clock.bound_at_ns || peer->clock.bound == UINT32_MAX)
        return -1;
    double age = (double)(stepaf_monotonic_ns() - peer->clock.bound_at_ns);
    return own + peer->clock.bound + (int64_t)(age * 2e-6 * STEPAF_CLOCK_DRIFT_PPM);
}

/* Note the bound that the peer reported @a age_ns ago. */
static void take_bound(struct stepaf_peer *peer, uint32_t bound, int64_t age_ns)
{
    peer->clock.bound = bound;
    peer->clock.bound_at_ns = stepaf_monotonic_ns() - (age_ns > 0 ? age_ns : 0);
}

bool stepaf_clock_ask(struct stepaf_peer *peer)
{
    struct stepaf_msg ping = {.type = STEPAF_MSG_PING, .seq = ++peer->clock.seq};

    peer->clock.asked = true;
    peer->clock.asked_ns = stepaf_monotonic_ns();
    put_word64(&ping, 0, (uint64_t)peer->clock.asked_ns);
    put_word64(&ping, 2, (uint64_t)stepaf_clock_now(peer->ctx));
    ping.word[4] = bound_word(peer->ctx);
    return stepaf_core_send(peer, &ping);
}

void stepaf_clock_ping(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_msg pong = *msg;
    int64_t now = stepaf_clock_now(peer->ctx), then = (int64_t)word64(msg, 2);

    if (then >= 0)
        take_bound(peer, msg->word[4], now - then);
    pong.type = STEPAF_MSG_PONG;
    put_word64(&pong, 2, (uint64_t)now);
    pong.word[4] = peer->ctx->clock.known;
    pong.word[5] = bound_word(peer->ctx);
    (void)stepaf_core_send(peer, &pong);
}

void stepaf_clock_pong(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_ctx *ctx = peer->ctx;
    int64_t now = stepaf_monotonic_ns(), took = now - peer->clock.asked_ns;
    int64_t its_now = (int64_t)word64(msg, 2);

    if (!peer->clock.asked || msg->seq != peer->clock.seq)
        return;
    if (its_now < 0 || its_now > INT64_MAX / 2) {
        ctx->counters.dropped_malformed++; /* not a time */
        return;
    }
    peer->clock.asked = false;
    take_bound(peer, msg->word[5], took);
    if ((int)peer->index != ctx->clock.server || !msg->word[4])
        return;
    int64_t middle = peer->clock.asked_ns + took / 2;
    struct stepaf_clock_probe probe = {
        .at_ns = middle, .offset_ns = its_now - middle, .half_ns = took / 2 + PROBE_READ_NS};
    stepaf_clock_filter_add(&ctx->clock.filter, probe,
                            msg->word[5] == UINT32_MAX ? UNKNOWN_NS : msg->word[5]);
    ctx->clock.n_probes++;
    turn(ctx);
}

/* Ask a peer, unless its last answer is outstanding, or the probe would have to wait in a queue and
 * measure nothing. */
static void probe(struct stepaf_peer *peer)
{
    if (peer->link && !peer->lost && !peer->is_out && !peer->link->has_backlog &&
        !peer->clock.asked)
        (void)stepaf_clock_ask(peer);
}

/* Ask the peer whose clock is followed. Attention ranks also exchange bounds with other peers,
 * round-robin. */
static void send_probes(struct stepaf_ctx *ctx)
{
    struct stepaf_ctx_clock *clock = &ctx->clock;

    if (clock->server >= 0)
        probe(&ctx->peers[clock->server]);
    if (!stepaf_is_attention(ctx))
        return;
    uint32_t n = clock->greets ? ctx->n_peers : (ctx->n_peers + PROBE_TURNS - 1) / PROBE_TURNS;
    clock->greets = false;
    for (; n > 0; n--) {
        clock->turn = clock->turn + 1 < ctx->n_peers ? clock->turn + 1 : 0;
        probe(&ctx->peers[clock->turn]);
    }
}

void stepaf_clock_keep(struct stepaf_ctx *ctx, uint64_t now)
{
    struct stepaf_ctx_clock *clock = &ctx->clock;
    uint64_t last = stepaf_clock_history_last(&clock->history)->ticks;

    if (now - last >= due_after(ctx, READING_EVERY_US) && (int64_t)(now - last) > 0)
        take_reading(ctx);
    if (clock->probes && ctx->state == STEPAF_CTX_OPEN &&
        now - clock->probed >= ticks_in(ctx, PROBE_EVERY_US)) {
        clock->probed = now;
        send_probes(ctx);
    } else if (clock->probes && ctx->state == STEPAF_CTX_OPEN && clock->server >= 0 &&
               clock->n_probes < PROBE_FEW &&
               now - clock->probed_first >= ticks_in(ctx, PROBE_FIRST_US)) {
        clock->probed_first = now;
        probe(&ctx->peers[clock->server]);
    }
}
