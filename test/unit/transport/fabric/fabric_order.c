/* SPDX-License-Identifier: Apache-2.0 */
/* Operations both ways between three sides over a fabric that knows no order, each of whose bytes
 * is looked at. */
#include <stdlib.h>

#include "fabric_side.h"
#include "unit.h"

enum {
    STREAMS = 4,
    AREAS = 24, /* more than messages can be ahead */
    AREA = 24576,
    XFERS = 6,
    IDLE = 200000, /* polls in vain before a test gives up */
    DRAIN = 30000  /* polls of all sides */
};

/* Operations of one side for one peer: each writes into the next area of the peer's memory. */
struct stream {
    struct side *from, *to;
    uint32_t peer;
    struct stepaf_mem *source, *target;
    struct stepaf_rmem *rmem;
    uint32_t begun, posted, delivered;
    struct stepaf_post posts[AREAS];
    struct stepaf_xfer xfers[AREAS][XFERS];
};

static uint8_t *itself(const void *at)
{
    return (uint8_t *)(uintptr_t)at;
}

struct stepaf_mem *(*fabric_order_memory)(struct side *side, size_t bytes) = fabric_memory;
uint8_t *(*fabric_order_view)(const void *at) = itself;
struct side fabric_sides[FABRIC_SIDES];
static struct stream streams[STREAMS];
static uint32_t n_wrong;

static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* What an operation writes: sizes, and bytes. */
static unsigned xfers_of(uint32_t stream, uint32_t op)
{
    return mix(op * STREAMS + stream) % (XFERS + 1);
}

static uint32_t bytes_of(uint32_t stream, uint32_t op, unsigned i)
{
    uint32_t x = mix(mix(op * STREAMS + stream) + i);

    return x % 16 ? x / 16 % 300 : x / 16 % (AREA / XFERS);
}

static uint8_t byte_of(uint32_t stream, uint32_t op, uint32_t at)
{
    return (uint8_t)(mix(op * STREAMS + stream) + at * 7);
}

/* Whether the message is one that 32 bits can say. */
static bool is_short(uint32_t stream, uint32_t op)
{
    return mix(mix(op * STREAMS + stream) + XFERS) % 4;
}

static void open_stream(uint32_t s, struct side *from, uint32_t peer, struct side *to)
{
    struct stream *stream = &streams[s];

    *stream = (struct stream){.from = from, .to = to, .peer = peer};
    stream->source = fabric_order_memory(from, (size_t)AREAS * AREA);
    stream->target = fabric_order_memory(to, (size_t)AREAS * AREA);
    stream->rmem = side_import(from, peer, to, stream->target);
}

static uint32_t draw(uint32_t below)
{
    static uint32_t state = 9;

    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(state >> 4) * below >> 28);
}

void fabric_order_begin(void)
{
    n_wrong = 0;
    fabric_open_three((struct side *[]){&fabric_sides[0], &fabric_sides[1], &fabric_sides[2]});
    for (uint32_t s = 1; s < FABRIC_SIDES; s++) {
        open_stream(2 * (s - 1), &fabric_sides[0], s - 1, &fabric_sides[s]);
        open_stream(2 * s - 1, &fabric_sides[s], 0, &fabric_sides[0]);
    }
}

/* Operations that were broken off come to their end: closing would wait for each. */
static void drain(void)
{
    for (int i = 0; i < DRAIN; i++) {
        struct side *side = &fabric_sides[i % FABRIC_SIDES];
        (void)side_progress(side);
        side->n_messages = 0;
    }
}

void fabric_order_end(uint64_t *n_dropped_p)
{
    uint64_t n_dropped = 0;

    if (n_wrong)
        drain();
    for (int s = 0; s < STREAMS; s++)
        side_ops->release_mem(streams[s].from->links[streams[s].peer], streams[s].rmem);
    for (int s = 0; s < FABRIC_SIDES; s++) {
        CU_ASSERT_EQUAL(fabric_sides[s].n_lost, 0);
        n_dropped += fabric_sides[s].up.dropped_malformed;
        side_close(&fabric_sides[s]);
    }
    if (n_dropped_p)
        *n_dropped_p = n_dropped;
    else
        CU_ASSERT_EQUAL(n_dropped, 0);
    CU_ASSERT_EQUAL(n_wrong, 0);
}

/* Put an operation together, in the sources of its area. */
static struct stepaf_post *compose(struct stream *stream)
{
    uint32_t s = (uint32_t)(stream - streams), op = stream->begun++, at = 0;
    unsigned area = op % AREAS;
    struct stepaf_post *post = &stream->posts[area];
    uint8_t *bytes_at = fabric_order_view(stream->source->base) + (size_t)area * AREA;

    *post = (struct stepaf_post){.link = stream->from->links[stream->peer],
                                 .xfer = stream->xfers[area],
                                 .n_xfer = (uint8_t)xfers_of(s, op)};
    post->msg =
        (struct stepaf_msg){.type = STEPAF_MSG_START, .plan = (uint16_t)s, .seq = op, .word = {op}};
    post->msg.n_words = !is_short(s, op);
    post->is_short = stepaf_msg_to_imm(&post->msg, &post->imm);
    for (unsigned i = 0; i < post->n_xfer; i++) {
        uint32_t bytes = bytes_of(s, op, i);
        stream->xfers[area][i] =
            (struct stepaf_xfer){stream->source->base + (size_t)area * AREA + at, stream->source,
                                 stream->rmem, (uint64_t)area * AREA + at, bytes};
        for (uint32_t end = at + bytes; at < end; at++)
            bytes_at[at] = byte_of(s, op, at);
    }
    return post;
}

/* Post what can be, in order; sources that may be reused are. */
static void post_some(struct stream *stream, uint32_t ops)
{
    while (stream->posted < ops) {
        if (stream->posted == stream->begun) {
            uint32_t before = stream->begun - AREAS; /* of the same area */
            if (stream->begun >= AREAS &&
                ((int32_t)(stream->delivered - before) <= 0 ||
                 stream->posts[stream->begun % AREAS].state != STEPAF_POST_SENT))
                return;
            (void)compose(stream);
        }
        struct stepaf_post *post = &stream->posts[stream->posted % AREAS];
        side_ops->post(&post, 1);
        if (post->state == STEPAF_POST_QUEUED)
            return;
        stream->posted++;
    }
}

static void spoil_sources(struct stream *stream)
{
    for (uint32_t op = stream->posted < AREAS ? 0 : stream->posted - AREAS; op < stream->posted;
         op++)
        if (stream->posts[op % AREAS].state == STEPAF_POST_SENT)
            memset(fabric_order_view(stream->source->base) + (size_t)(op % AREAS) * AREA, 0xee, 64);
}

static void look_at(const struct side *side, const struct stepaf_msg *msg)
{
    struct stream *stream = &streams[msg->plan % STREAMS];
    uint32_t s = msg->plan, op = stream->delivered, at = 0;
    uint8_t *area = fabric_order_view(stream->target->base) + (size_t)(op % AREAS) * AREA;

    if (s >= STREAMS || stream->to != side || ((msg->seq - op) & STEPAF_IMM_SEQ_MASK) != 0 ||
        (!is_short(s, op) && (msg->n_words != 1 || msg->word[0] != op))) {
        n_wrong++;
        return;
    }
    for (unsigned i = 0; i < xfers_of(s, op); i++)
        for (uint32_t end = at + bytes_of(s, op, i); at < end; at++)
            n_wrong += area[at] != byte_of(s, op, at);
    memset(area, 0x5a, at);
    stream->delivered++;
}

static bool is_through(uint32_t ops)
{
    for (int s = 0; s < STREAMS; s++) {
        if (streams[s].delivered < ops)
            return false;
        for (uint32_t a = 0; a < AREAS && a < ops; a++)
            if (streams[s].posts[a].state != STEPAF_POST_SENT)
                return false;
    }
    return true;
}

void fabric_order_exchange(uint32_t ops)
{
    for (int idle = 0; idle < IDLE && !is_through(ops) && !n_wrong; idle++) {
        for (int s = 0; s < STREAMS; s++) {
            post_some(&streams[s], ops);
            spoil_sources(&streams[s]);
        }
        struct side *side = &fabric_sides[draw(FABRIC_SIDES)];
        (void)side_progress(side);
        for (unsigned i = 0; i < side->n_messages; i++)
            look_at(side, &side->messages[i]);
        if (side->n_messages)
            idle = 0;
        side->n_messages = 0;
        for (int s = 0; s < FABRIC_SIDES && idle % 64 == 63; s++) { /* no time passes here */
            fabric_of(&fabric_sides[s])->looked_ns = 0;
            side_ops->check_peers(fabric_sides[s].transport);
        }
    }
    CU_ASSERT_TRUE(is_through(ops));
}

uint32_t fabric_order_ops(uint32_t usual)
{
    const char *given = getenv("FABRIC_OPS");

    return given ? (uint32_t)strtoul(given, NULL, 0) : getenv("TEST_LIGHT") ? usual / 10 : usual;
}
