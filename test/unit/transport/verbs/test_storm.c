/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA over one rail, or over several that die at moments drawn at random, with traffic both ways
 * of which every step's order is drawn as well. Every message comes once, in order, with its bytes;
 * sources that are said to be free are overwritten at once, and receive buffers once their message
 * was taken. */
#include <stdlib.h>

#include "unit.h"
#include "verbs_side.h"

enum { SLOTS = 8, SLOT = 1 << 14, MESSAGES = 60, RUNS = 150, STEPS = 200000 };

/* What a link counts shortly before that wraps; whole rounds of 16 receives. */
static const uint32_t aged = 0u - 32;

struct flow {
    struct vside *from, *to;
    struct stepaf_rmem *rmem;
    struct stepaf_post posts[SLOTS];
    struct stepaf_xfer xfers[SLOTS][3];
    uint32_t bytes[SLOTS];
    bool offered;  /* the next one was, and found no room */
    unsigned sent; /* messages */
    unsigned taken;
};

static struct vside a, b;
static struct flow there, back;
static uint64_t seed;

static unsigned draw(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

static uint8_t byte_of(const struct flow *flow, unsigned message, uint32_t i)
{
    return (uint8_t)(message * 37 + i * 11 + i / 97 + (flow == &back ? 101 : 0));
}

/* Region 0 is sent from, 1 is written to. */
static void on_message(struct vside *side, const struct stepaf_msg *msg)
{
    struct flow *flow = side == &b ? &there : &back;
    unsigned slot = flow->taken % SLOTS;
    uint8_t *at = side->regions[1].base + (size_t)slot * SLOT;

    CU_ASSERT_EQUAL(msg->seq & 1023, flow->taken & 1023);
    CU_ASSERT(flow->taken < flow->sent);
    uint32_t good = 0;
    while (good < flow->bytes[slot] && at[good] == byte_of(flow, flow->taken, good))
        good++;
    CU_ASSERT_EQUAL(good, flow->bytes[slot]);
    memset(at, 0xcc, SLOT); /* what comes late would be seen */
    flow->taken++;
}

/* Make the next post: none to three tensors, small ones and such as are divided. */
static void make(struct flow *flow)
{
    static const uint32_t sizes[] = {0, 8, 200, 1000, 4096, 5400};
    unsigned slot = flow->sent % SLOTS, n = draw(4);
    struct stepaf_post *post = &flow->posts[slot];
    uint8_t *src = flow->from->regions[0].base + (size_t)slot * SLOT;
    uint32_t at = 0;

    *post = (struct stepaf_post){.link = flow->from->links[0],
                                 .xfer = flow->xfers[slot],
                                 .n_xfer = (uint8_t)n,
                                 .msg = {.type = STEPAF_MSG_START, .seq = flow->sent}};
    if (draw(3) == 0) { /* through the ring */
        post->msg.type = STEPAF_MSG_RELEASE;
        post->msg.n_words = draw(STEPAF_MSG_WORDS + 1);
    }
    for (unsigned i = 0; i < n; i++) {
        uint32_t bytes = sizes[draw(sizeof(sizes) / sizeof(sizes[0]))];
        post->xfer[i] = (struct stepaf_xfer){.src = src + at,
                                             .src_mem = &flow->from->regions[0],
                                             .dst = flow->rmem,
                                             .dst_offset = (uint64_t)slot * SLOT + at,
                                             .bytes = bytes};
        at += bytes;
    }
    flow->bytes[slot] = at;
    for (uint32_t i = 0; i < at; i++)
        src[i] = byte_of(flow, flow->sent, i);
}

/* Overwrite what has been said to be free. */
static void reuse_sources(struct flow *flow)
{
    for (unsigned slot = 0; slot < SLOTS; slot++)
        if (flow->posts[slot].state == STEPAF_POST_SENT) {
            memset(flow->from->regions[0].base + (size_t)slot * SLOT, 0xdd, SLOT);
            flow->posts[slot].state = STEPAF_POST_IDLE;
        }
}

static void try_send(struct flow *flow)
{
    unsigned slot = flow->sent % SLOTS;
    struct stepaf_post *post = &flow->posts[slot];

    if (flow->sent == MESSAGES || flow->sent - flow->taken == SLOTS)
        return;
    if (!flow->offered && post->state == STEPAF_POST_POSTED) {
        /* The peer has taken it, as its answer tells the engine, and the device does not know. */
        if (draw(2))
            return;
        stepaf_verbs_ops.retire(post);
    }
    if (!flow->offered)
        make(flow);
    flow->sent++; /* what is sent may be taken before this returns */
    flow->offered = vside_send(post) == STEPAF_POST_QUEUED;
    flow->sent -= flow->offered;
}

static struct flow *flow_make(struct flow *flow, struct vside *from, struct vside *to)
{
    *flow = (struct flow){.from = from, .to = to};
    flow->rmem = vside_import(from, 0, to, &to->regions[1]);
    return flow;
}

static bool is_over(void)
{
    for (unsigned slot = 0; slot < SLOTS; slot++)
        if (there.posts[slot].state == STEPAF_POST_POSTED ||
            back.posts[slot].state == STEPAF_POST_POSTED)
            return false;
    return there.taken == MESSAGES && back.taken == MESSAGES;
}

static void step(void)
{
    struct flow *flow = draw(2) ? &there : &back;

    switch (draw(5)) {
    case 0:
        try_send(flow);
        break;
    case 1:
        vside_progress(flow->from);
        reuse_sources(flow);
        break;
    default:
        (void)verbs_device_go_one(draw(1000));
    }
}

/* As after that many operations. */
static void age(struct vside *side)
{
    struct stepaf_verbs_link *link = vside_link(side, 0);

    for (unsigned i = 0; i < link->n_paths; i++) {
        struct stepaf_verbs_path *path = &link->paths[i];
        path->wr.posted = path->wr.done = path->wr.asked = 0u - 1 - draw(60);
        path->tx.next = path->tx.read = aged;
        path->rx.next = path->rx.refilled = path->rx.told = path->rx.parts_from = aged;
        *(uint32_t *)(uintptr_t)path->tx_ack = aged;
    }
    link->rx_arrived = aged;
    link->base.messages_sent = aged;
}

/* One connection's life, during which all rails but one die. */
static void storm(const char *settings, int n_rails)
{
    unsigned left = (unsigned)n_rails - 1;
    int first = (int)draw((unsigned)n_rails);

    vside_settings = settings;
    vside_open(&a, 1);
    vside_open(&b, 1);
    vside_join(&a, &b);
    for (int i = 0; i < 2; i++) {
        vside_memory(&a, SLOTS * SLOT);
        vside_memory(&b, SLOTS * SLOT);
    }
    a.taken = b.taken = on_message;
    uint32_t before = draw(2) ? aged : 0; /* messages */
    if (before) {
        age(&a);
        age(&b);
    }
    flow_make(&there, &a, &b);
    flow_make(&back, &b, &a);
    verbs_device.holds = true;
    unsigned steps = 0;
    for (; steps < STEPS && !is_over() && !a.n_lost && !b.n_lost; steps++) {
        if (left && !verbs_device.dies_after) {
            verbs_device.dies = (first + (int)left) % n_rails;
            verbs_device.dies_after = 1 + (int)draw(200);
            verbs_device.dies_late = draw(2);
            left--;
        }
        step();
    }
    CU_ASSERT(is_over());
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    CU_ASSERT_EQUAL(a.up.dropped_malformed + b.up.dropped_malformed, 0);
    CU_ASSERT_EQUAL((uint32_t)a.links[0]->messages_sent, before + MESSAGES);
    CU_ASSERT_EQUAL(verbs_device.n_unready + verbs_device.n_overflow, 0);
    if (!is_over())
        fprintf(stderr, "\n    %s: %u steps, %u and %u taken; %s%s\n", settings, steps, there.taken,
                back.taken, a.lost_reason, b.lost_reason);
    verbs_device.holds = false;
    stepaf_verbs_ops.release_mem(a.links[0], there.rmem);
    stepaf_verbs_ops.release_mem(b.links[0], back.rmem);
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static void storms(const char *settings, int n_rails, uint32_t max_inline)
{
    unsigned runs = getenv("TEST_LIGHT") ? RUNS / 10 : RUNS;
    unsigned failures = CU_get_number_of_failures();

    for (unsigned run = 1; run <= runs; run++) {
        seed = run;
        verbs_device_reset();
        verbs_device.n_devices = n_rails;
        verbs_device.max_inline = max_inline;
        verbs_device.max_msg = 2048;
        storm(settings, n_rails);
        if (CU_get_number_of_failures() != failures) {
            fprintf(stderr, "\n    run %u of %s\n", run, settings);
            return;
        }
    }
}

#define RAIL1 "NET_DEVICES=fake0 VERBS_STRIPE_BYTES=4096 VERBS_SEND_DEPTH=32 VERBS_RECEIVES=16 "
#define RAILS2 "NET_DEVICES=fake0,fake1 VERBS_STRIPE_BYTES=4096 VERBS_SEND_DEPTH=32 "
#define RAILS3 "NET_DEVICES=fake0,fake1,fake2 VERBS_STRIPE_BYTES=4096 VERBS_SEND_DEPTH=32 "

static void one_rail(void)
{
    storms(RAIL1, 1, 256);
    storms(RAIL1, 1, 0);
    storms(RAIL1 "VERBS_QPS=4", 1, 256);
    storms(RAIL1 "VERBS_QPS=3 VERBS_NOTIFY=send", 1, 32);
}

static void two_rails(void)
{
    storms(RAILS2 "VERBS_RECEIVES=16", 2, 256);
    storms(RAILS2, 2, 0);
}

static void three_rails(void)
{
    storms(RAILS3 "VERBS_RECEIVES=16", 3, 64);
}

static void several_queue_pairs_on_each(void)
{
    storms(RAILS2 "VERBS_RECEIVES=16 VERBS_QPS=2", 2, 256);
    storms(RAILS3 "VERBS_RECEIVES=16 VERBS_QPS=4", 3, 256);
}

static void messages_that_are_sent(void)
{
    storms(RAILS2 "VERBS_RECEIVES=16 VERBS_NOTIFY=send", 2, 256);
    storms(RAILS3 "VERBS_RECEIVES=16 VERBS_NOTIFY=send VERBS_QPS=2", 3, 32);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"one rail", one_rail},
        {"two rails", two_rails},
        {"three rails", three_rails},
        {"several queue pairs on each", several_queue_pairs_on_each},
        {"messages that are sent", messages_that_are_sent},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
