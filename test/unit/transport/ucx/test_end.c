/* SPDX-License-Identifier: Apache-2.0 */
/* UCX: what is under way to lost peers, and from them, ends before memory goes, and before the
 * transport is closed. */
#include "base/time.h"
#include "ucx_fabric_inside.h"
#include "unit.h"

enum { ROOM = 65536, BYTES = 5000, TRIES = 100000, SEEDS = 20, MS = 1000000 };

static struct side a, b;
static struct stepaf_mem *source, *target;
static struct stepaf_rmem *rmem;

static void begin(uint32_t seed)
{
    ucx_fabric_reset(seed);
    ucx_fabric.at_once_in = 0;
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    fabric_join(&a, 0, &b, 0);
    fabric_prove((struct side *[]){&a, &b}, 2);
    source = fabric_memory(&a, ROOM);
    target = fabric_memory(&b, ROOM);
    rmem = side_import(&a, 0, &b, target);
    memset(source->base, 0x77, BYTES);
    memset(target->base, 0, BYTES);
}

static void end(void)
{
    side_close(&a);
    side_close(&b);
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_foreign, 0);
}

/* A tensor to b, which no copy is made of. */
static struct stepaf_post *send_tensor(void)
{
    static struct stepaf_xfer xfer;
    static struct stepaf_post post;
    struct stepaf_post *posts[] = {&post};

    xfer = (struct stepaf_xfer){source->base, source, rmem, 0, BYTES};
    post = (struct stepaf_post){.link = a.links[0], .xfer = &xfer, .n_xfer = 1};
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = 5};
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_POSTED);
    return &post;
}

static bool becomes_quiet(struct side *side)
{
    uint32_t peer = 9;
    bool quiet = side_ops->is_quiet(side->transport, true, &peer);

    for (int i = 0; i < TRIES && !quiet; i++)
        quiet = side_ops->is_quiet(side->transport, false, &peer);
    return quiet;
}

/* Of a live peer it is waited for what it has not acknowledged; of a lost one it never will be. */
static void sends_to_lost_peers_are_ended(void)
{
    uint32_t peer = 9;

    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        begin(seed);
        ucx_fabric.mute = 1u << ucx_fabric_number(&a);
        struct stepaf_post *post = send_tensor();
        for (int i = 0; i < 50; i++)
            CU_ASSERT_FALSE(side_ops->is_quiet(a.transport, !i, &peer));
        CU_ASSERT_EQUAL(peer, 0);
        a.up.lost(&a.up, a.links[0], "it accepts no data");
        side_ops->retire(post);
        CU_ASSERT_TRUE(becomes_quiet(&a));
        CU_ASSERT_EQUAL(fabric_link(&a, 0)->flight[0].pending, 0); /* and UCX has told so */
        side_ops->dereg_mem(a.transport, source);
        ucx_fabric.mute = 0;
        for (int i = 0; i < 1000; i++)
            (void)side_progress(&b);
        CU_ASSERT_EQUAL(b.n_messages, 0);
        side_ops->release_mem(a.links[0], rmem);
        end();
    }
}

/* UCX refuses it, its first piece or a later one: the peer is lost, and nobody waits for the post. */
static void what_finds_a_peer_lost_is_not_under_way(void)
{
    for (unsigned n_tensors = 1; n_tensors <= 2; n_tensors++) {
        begin(5);
        struct stepaf_xfer xfers[2] = {{source->base, source, rmem, 0, BYTES},
                                       {source->base, source, rmem, BYTES, BYTES}};
        struct stepaf_post post = {
            .link = a.links[0], .xfer = xfers, .n_xfer = (uint16_t)n_tensors};
        struct stepaf_post *posts[] = {&post};
        post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = 5};
        ucx_fabric.refuse = UCS_ERR_CONNECTION_RESET;
        CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(a.n_lost, 1);
        for (int i = 0; i < STEPAF_FABRIC_RING; i++)
            CU_ASSERT_PTR_NULL(fabric_link(&a, 0)->flight[i].post);
        ucx_fabric.refuse = UCS_OK;
        side_ops->release_mem(a.links[0], rmem);
        end();
    }
}

/* Nobody has asked whether it is quiet. */
static void memory_that_goes_is_not_sent_from(void)
{
    begin(5);
    ucx_fabric.mute = 1u << ucx_fabric_number(&a);
    side_ops->retire(send_tensor());
    a.up.lost(&a.up, a.links[0], "it accepts no data");
    side_ops->dereg_mem(a.transport, source);
    CU_ASSERT_EQUAL(fabric_link(&a, 0)->flight[0].pending, 0);
    side_ops->release_mem(a.links[0], rmem);
    end();
}

/* b has been told of a tensor. */
static void begin_told(uint32_t seed)
{
    begin(seed);
    ucx_fabric.told_in = 1;
    side_ops->retire(send_tensor());
    for (int i = 0; i < TRIES && !ucx_fabric.n_told; i++)
        (void)side_progress(&b);
    CU_ASSERT_EQUAL(ucx_fabric.n_told, 1);
}

/* It has begun to fetch the tensor when the peer is lost. False: that has come already, as the dice
 * fell. */
static bool begin_fetch(uint32_t seed)
{
    begin_told(seed);
    ucx_fabric.mute = 1u << ucx_fabric_number(&a);
    b.up.lost(&b.up, b.links[0], "given up");
    return !b.n_messages;
}

/* As UCX knows. */
static unsigned fetches_under_way(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < ucx_made.n_active; i++)
        n += ucx_made.requests[ucx_made.active[i]].kind == FETCH;
    return n;
}

/* The memory is the caller's again: nothing comes. */
static void check_untouched(void)
{
    unsigned n = 0;

    CU_ASSERT_EQUAL(fetches_under_way(), 0);
    memset(target->base, 0, BYTES);
    ucx_fabric.mute = 0;
    for (int i = 0; i < 200; i++)
        (void)side_progress(&b);
    for (int i = 0; i < BYTES; i++)
        n += target->base[i] != 0;
    CU_ASSERT_EQUAL(n, 0);
    side_ops->release_mem(a.links[0], rmem);
    end();
}

/* Asked for whether it is quiet, or not. */
static void what_is_fetched_ends_before_memory_goes(void)
{
    unsigned n = 0;

    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        n += begin_fetch(seed);
        if (seed % 2)
            CU_ASSERT_TRUE(becomes_quiet(&b));
        if (seed % 2 == 0 || seed % 4 == 1)
            side_ops->dereg_mem(b.transport, target);
        check_untouched();
    }
    CU_ASSERT(n > SEEDS / 2);
}

/* What a live peer sends does not keep its receiver from being quiet, as nothing of RDMA's does. */
static void what_is_fetched_from_live_peers_goes_on(void)
{
    uint32_t peer = 9;
    unsigned n = 0;

    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        begin_told(seed);
        n += fetches_under_way();
        ucx_fabric.mute = 1u << ucx_fabric_number(&a);
        CU_ASSERT_TRUE(side_ops->is_quiet(b.transport, true, &peer));
        ucx_fabric.mute = 0;
        CU_ASSERT_TRUE(fabric_until_messages(&b, &a, 1));
        CU_ASSERT_EQUAL(fetches_under_way(), 0);
        CU_ASSERT_EQUAL(memcmp(target->base, source->base, BYTES), 0);
        side_ops->release_mem(a.links[0], rmem);
        end();
    }
    CU_ASSERT(n > SEEDS / 2);
}

/* A close that nobody is told of the end of. */
static ucs_status_ptr_t never_closed(ucp_ep_h ep, const ucp_request_param_t *param)
{
    static struct request never;

    (void)ep;
    (void)param;
    return &never;
}

/* Nothing of a silent peer's comes to an end: close takes a second, and leaves it. */
static void close_takes_a_second(void)
{
    static struct stepaf_ucx_library library;

    begin(5);
    ucx_fabric.mute = 1u << ucx_fabric_number(&a);
    side_ops->retire(send_tensor());
    side_ops->release_mem(a.links[0], rmem);
    library = ucx_fabric_library;
    library.ep_close_nbx = never_closed;
    ucx_of(&a)->calls = &library;
    int64_t begun = stepaf_monotonic_ns();
    side_close(&a);
    int64_t took = stepaf_monotonic_ns() - begun;
    CU_ASSERT(took >= 700 * MS && took < 1500 * MS); /* three waits would be 3 s */
    side_close(&b);
    ucx_fabric_forget();
}

/* What takes the time is ended by force all the same. */
static void close_ends_what_is_silent(void)
{
    begin(5);
    ucx_fabric.mute = 1u << ucx_fabric_number(&a);
    side_ops->retire(send_tensor());
    side_ops->release_mem(a.links[0], rmem);
    int64_t begun = stepaf_monotonic_ns();
    end();
    CU_ASSERT(stepaf_monotonic_ns() - begun < 1500 * MS);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"sends to lost peers are ended", sends_to_lost_peers_are_ended},
        {"what finds a peer lost is not under way", what_finds_a_peer_lost_is_not_under_way},
        {"memory that goes is not sent from", memory_that_goes_is_not_sent_from},
        {"what is fetched ends before memory goes", what_is_fetched_ends_before_memory_goes},
        {"what is fetched from live peers goes on", what_is_fetched_from_live_peers_goes_on},
        {"close takes a second", close_takes_a_second},
        {"close ends what is silent", close_ends_what_is_silent},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
