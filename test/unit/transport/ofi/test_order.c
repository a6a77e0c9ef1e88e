/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric, over a fabric that knows no order: writes land in parts, completions come as they like, writes are
 * refused for a while. Each byte of each operation is looked at when its message is delivered. Three sides, a link
 * from the first to each other one, both ways; OFI_OPS is how many operations each way. */
#include <stdlib.h>

#include "ofi_fabric.h"
#include "unit.h"

enum {
    SIDES = 3,
    STREAMS = 4,
    AREAS = 24, /* more than messages can be ahead */
    AREA = 24576,
    XFERS = 6,
    OPS = 4000,
    IDLE = 200000 /* polls in vain before a test gives up */
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

static struct side sides[SIDES];
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

static void open_stream(uint32_t s, struct side *from, uint32_t peer, struct side *to)
{
    struct stream *stream = &streams[s];

    *stream = (struct stream){.from = from, .to = to, .peer = peer};
    stream->source = ofi_memory(from, (size_t)AREAS * AREA);
    stream->target = ofi_memory(to, (size_t)AREAS * AREA);
    stream->rmem = side_import(from, peer, to, stream->target);
}

static void begin(void)
{
    n_wrong = 0;
    for (int s = 0; s < SIDES; s++)
        ofi_open(&sides[s], s ? 1 : SIDES - 1);
    for (uint32_t s = 1; s < SIDES; s++) {
        ofi_join(&sides[0], s - 1, &sides[s], 0);
        open_stream(2 * (s - 1), &sides[0], s - 1, &sides[s]);
        open_stream(2 * s - 1, &sides[s], 0, &sides[0]);
    }
    ofi_prove((struct side *[]){&sides[0], &sides[1], &sides[2]}, SIDES);
}

static void end(void)
{
    for (int s = 0; s < STREAMS; s++)
        side_ops->release_mem(streams[s].from->links[streams[s].peer], streams[s].rmem);
    for (int s = 0; s < SIDES; s++) {
        CU_ASSERT_EQUAL(sides[s].n_lost, 0);
        CU_ASSERT_EQUAL(sides[s].up.dropped_malformed, 0);
        side_close(&sides[s]);
    }
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ofi_fabric.n_foreign, 0);
    CU_ASSERT(ofi_fabric.more_run < STEPAF_OFI_MORE_MAX);
    CU_ASSERT_EQUAL(n_wrong, 0);
}

/* Put an operation together, in the sources of its area. */
static struct stepaf_post *compose(struct stream *stream)
{
    uint32_t s = (uint32_t)(stream - streams), op = stream->begun++, at = 0;
    unsigned area = op % AREAS;
    struct stepaf_post *post = &stream->posts[area];

    *post = (struct stepaf_post){.link = stream->from->links[stream->peer],
                                 .xfer = stream->xfers[area],
                                 .n_xfer = (uint8_t)xfers_of(s, op)};
    post->msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = op, .n_words = 1, .word = {s}};
    for (unsigned i = 0; i < post->n_xfer; i++) {
        uint32_t bytes = bytes_of(s, op, i);
        stream->xfers[area][i] =
            (struct stepaf_xfer){stream->source->base + (size_t)area * AREA + at, stream->source,
                                 stream->rmem, (uint64_t)area * AREA + at, bytes};
        for (uint32_t end = at + bytes; at < end; at++)
            stream->source->base[(size_t)area * AREA + at] = byte_of(s, op, at);
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
            memset(stream->source->base + (size_t)(op % AREAS) * AREA, 0xee, 64);
}

static void look_at(const struct side *side, const struct stepaf_msg *msg)
{
    struct stream *stream = &streams[msg->word[0] % STREAMS];
    uint32_t s = msg->word[0], op = msg->seq, at = 0;
    uint8_t *area = stream->target->base + (size_t)(op % AREAS) * AREA;

    if (s >= STREAMS || stream->to != side || op != stream->delivered) {
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

static void exchange(uint32_t ops)
{
    for (int idle = 0; idle < IDLE && !is_through(ops) && !n_wrong; idle++) {
        for (int s = 0; s < STREAMS; s++) {
            post_some(&streams[s], ops);
            spoil_sources(&streams[s]);
        }
        struct side *side = &sides[ofi_fabric_random(SIDES)];
        (void)side_progress(side);
        for (unsigned i = 0; i < side->n_messages; i++)
            look_at(side, &side->messages[i]);
        if (side->n_messages)
            idle = 0;
        side->n_messages = 0;
        for (int s = 0; s < SIDES && idle % 64 == 63; s++) { /* no time passes here */
            ofi_of(&sides[s])->looked_ns = 0;
            side_ops->check_peers(sides[s].transport);
        }
    }
    CU_ASSERT_TRUE(is_through(ops));
}

static uint32_t how_many(uint32_t usual)
{
    const char *given = getenv("OFI_OPS");

    return given ? (uint32_t)strtoul(given, NULL, 0) : getenv("TEST_LIGHT") ? usual / 10 : usual;
}

static void nothing_depends_on_order(void)
{
    ofi_fabric_reset(1);
    begin();
    exchange(how_many(OPS));
    CU_ASSERT(ofi_fabric.n_overtaken > 0);
    CU_ASSERT(ofi_fabric.more_run > 2);
    end();
}

static void numbers_wrap(void)
{
    ofi_fabric_reset(2);
    begin();
    for (int s = 0; s < SIDES; s++)
        for (uint32_t p = 0; p < ofi_of(&sides[s])->n_peers; p++) {
            struct stepaf_ofi_link *link = ofi_link(&sides[s], p);
            link->sent = link->credit = link->taken = link->told = UINT32_MAX - 100;
        }
    exchange(how_many(OPS) / 4);
    end();
}

static void writes_are_refused_for_a_while(void)
{
    ofi_fabric_reset(3);
    begin();
    ofi_fabric.refuse_one_in = 3;
    exchange(how_many(OPS) / 4);
    CU_ASSERT(ofi_fabric.n_refused > 100);
    end();
}

static void few_writes_are_taken_at_a_time(void)
{
    ofi_fabric_reset(4);
    begin();
    ofi_fabric.depth = 2 * STEPAF_OFI_MORE_MAX;
    exchange(how_many(OPS) / 4);
    CU_ASSERT(ofi_fabric.n_refused > 100);
    end();
}

/* More pieces than writes can be under way. */
static void tensors_are_cut(void)
{
    ofi_fabric_reset(5);
    begin();
    for (int s = 0; s < SIDES; s++)
        ofi_of(&sides[s])->piece_max = 16;
    exchange(how_many(OPS) / 20);
    CU_ASSERT(ofi_fabric.n_writes > 100 * (how_many(OPS) / 20));
    end();
}

/* Memory as providers want it. */
static void memory_is_registered_in_each_way(void)
{
    static const uint64_t modes[] = {0, FI_MR_ENDPOINT, FI_MR_ENDPOINT | FI_MR_PROV_KEY,
                                     FI_MR_VIRT_ADDR};

    for (int m = 0; m < 4; m++) {
        ofi_fabric_reset(6);
        ofi_fabric.mr_mode = modes[m];
        ofi_fabric.taken_keys = modes[m] & FI_MR_PROV_KEY ? 0 : 3;
        begin();
        exchange(how_many(OPS) / 20);
        end();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"nothing depends on order", nothing_depends_on_order},
        {"numbers wrap", numbers_wrap},
        {"writes are refused for a while", writes_are_refused_for_a_while},
        {"few writes are taken at a time", few_writes_are_taken_at_a_time},
        {"tensors are cut", tensors_are_cut},
        {"memory is registered in each way", memory_is_registered_in_each_way},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
