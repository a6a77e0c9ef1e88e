/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric: writes that are refused in the middle of a post, and what waits for a doorbell then; peers
 * that take in nothing, and hold what all peers share. */
#include "base/time.h"
#include "three.h"

enum { ROOM = 65536, TENSORS = 8, BYTES = 64, TRIES = 100000 };

static ssize_t (*really)(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags);
static unsigned n_taken; /* writes, until one to b is refused */
static int refusal;
static fi_addr_t refuses;

static ssize_t write_some(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    if (msg->addr != refuses)
        return really(ep, msg, flags);
    if (!n_taken)
        return -refusal;
    n_taken--;
    return really(ep, msg, flags);
}

static struct stepaf_xfer xfers[TENSORS];
static struct stepaf_post post;
static struct stepaf_rmem *rmem;

/* A post of tensors to b, of which the first so many are taken. */
static void post_some(unsigned n, int error)
{
    struct stepaf_post *posts[] = {&post};
    struct stepaf_mem *source = fabric_memory(&a, ROOM);

    rmem = side_import(&a, 0, &b, fabric_memory(&b, ROOM));
    memset(source->base, 0x77, ROOM);
    for (unsigned i = 0; i < TENSORS; i++)
        xfers[i] = (struct stepaf_xfer){source->base, source, rmem, BYTES * i, BYTES};
    post = (struct stepaf_post){.link = a.links[0], .xfer = xfers, .n_xfer = TENSORS};
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START};
    take_in_all();
    really = ofi_fabric_rma.writemsg;
    ofi_fabric_rma.writemsg = write_some;
    n_taken = n;
    refusal = error;
    refuses = ofi_fabric_number(&b);
    (void)side_ops->post(posts, 1);
}

static bool all_ends(void)
{
    for (int i = 0; i < TRIES && stepaf_fabric_link_has_pending(fabric_link(&a, 0)); i++)
        (void)side_progress(&a);
    return !stepaf_fabric_link_has_pending(fabric_link(&a, 0));
}

static void finish(void)
{
    ofi_fabric_rma.writemsg = really;
    side_ops->release_mem(a.links[0], rmem);
    end();
}

/* There is no room, and so soon there will be none. */
static void what_was_taken_before_a_full_queue_is_rung_for(void)
{
    struct stepaf_post *posts[] = {&post};

    begin();
    post_some(3, FI_EAGAIN);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_QUEUED);
    CU_ASSERT_EQUAL(fabric_link(&a, 0)->flight[0].pending, 3);
    CU_ASSERT_TRUE(all_ends());
    CU_ASSERT_EQUAL(b.regions[0].base[3 * BYTES - 1], 0x77);
    CU_ASSERT_EQUAL(b.regions[0].base[3 * BYTES], 0);
    n_taken = TRIES;
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
    CU_ASSERT_TRUE(fabric_until_messages(&b, &a, 1));
    CU_ASSERT_EQUAL(b.regions[0].base[TENSORS * BYTES - 1], 0x77);
    check_link(&b, 0);
    check_link(&c, 1);
    finish();
}

static void what_was_taken_by_a_lost_peer_is_rung_for(void)
{
    uint32_t peer = 9;

    begin();
    post_some(3, FI_ECONNRESET);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    n_taken = TRIES;
    CU_ASSERT_TRUE(all_ends());
    CU_ASSERT_TRUE(side_ops->is_quiet(a.transport, true, &peer));
    check_link(&c, 1);
    finish();
}

/* Nobody else is left whom to write to. */
static void the_last_peer_is_rung_for(void)
{
    begin();
    a.up.lost(&a.up, a.links[1], "given up");
    post_some(3, FI_ECONNRESET);
    CU_ASSERT_EQUAL(a.n_lost, 2);
    CU_ASSERT_TRUE(all_ends());
    finish();
}

/* As many writes without a doorbell as it has room for would wait for ever. */
static void a_short_queue_rings_in_time(void)
{
    enum { DEPTH = 4 };
    struct stepaf_post *posts[] = {&post};

    ofi_fabric_reset(21);
    ofi_fabric.depth = DEPTH;
    fabric_open_three(all);
    post_some(TRIES, 0);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_QUEUED);
    for (int i = 0; i < TRIES && side_ops->post(posts, 1); i++)
        take_in_all();
    CU_ASSERT_TRUE(fabric_until_messages(&b, &a, 1));
    CU_ASSERT_EQUAL(b.regions[0].base[TENSORS * BYTES - 1], 0x77);
    CU_ASSERT_EQUAL(ofi_fabric.more_run, DEPTH - 1);
    finish();
}

enum { SILENT = 4, POSTS = STEPAF_FABRIC_RING, MS = 1000000, TIMEOUT_MS = 400 };

static struct side peers[SILENT + 1];
static struct side *const live = &peers[SILENT];
static unsigned silent; /* endpoints, a bit each */

/* What is written to a silent peer is accepted, and never ends. */
static ssize_t write_in_vain(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    return silent & 1u << msg->addr ? 0 : really(ep, msg, flags);
}

static void go_on(int64_t ms, bool with_live)
{
    for (int64_t end_ns = stepaf_monotonic_ns() + ms * MS; stepaf_monotonic_ns() < end_ns;) {
        (void)side_progress(&a);
        side_ops->check_peers(a.transport);
        if (!with_live)
            continue;
        (void)side_progress(live);
        side_ops->check_peers(live->transport);
    }
}

static struct stepaf_rmem *rmems[SILENT + 1];

static enum stepaf_post_state send_to(uint32_t to, struct stepaf_post *it)
{
    static struct stepaf_xfer many[STEPAF_MAX_TENSORS];

    for (unsigned i = 0; i < STEPAF_MAX_TENSORS; i++)
        many[i] =
            (struct stepaf_xfer){a.regions[0].base, &a.regions[0], rmems[to], BYTES * i, BYTES};
    *it = (struct stepaf_post){.link = a.links[to], .xfer = many, .n_xfer = STEPAF_MAX_TENSORS};
    it->msg = (struct stepaf_msg){.type = STEPAF_MSG_START};
    (void)side_ops->post(&it, 1);
    return it->state;
}

/* Four of five peers fall silent, and hold all that there is. */
static void begin_silence(void)
{
    static struct stepaf_post posts[SILENT][POSTS];
    struct side *every[SILENT + 2] = {&a};

    ofi_fabric_reset(21);
    fabric_open(&a, SILENT + 1);
    for (uint32_t s = 0; s <= SILENT; s++) {
        every[s + 1] = &peers[s];
        fabric_open(&peers[s], 1);
        fabric_join(&a, s, &peers[s], 0);
    }
    fabric_prove(every, SILENT + 2);
    (void)fabric_memory(&a, ROOM);
    for (uint32_t s = 0; s <= SILENT; s++)
        rmems[s] = side_import(&a, s, &peers[s], fabric_memory(&peers[s], ROOM));
    really = ofi_fabric_rma.writemsg;
    ofi_fabric_rma.writemsg = write_in_vain;
    silent = 0;
    for (int s = 0; s < SILENT; s++)
        silent |= 1u << ofi_fabric_number(&peers[s]);
    for (uint32_t s = 0; s < SILENT; s++)
        for (int i = 0; i < POSTS; i++)
            if (send_to(s, &posts[s][i]) == STEPAF_POST_QUEUED)
                break;
    CU_ASSERT_PTR_NULL(ofi_of(&a)->free_op);
    a.env.ofi_peer_timeout_us = live->env.ofi_peer_timeout_us = TIMEOUT_MS * 1000;
}

static void end_silence(void)
{
    ofi_fabric_rma.writemsg = really;
    for (uint32_t s = 0; s <= SILENT; s++)
        side_ops->release_mem(a.links[s], rmems[s]);
    side_close(&a);
    for (int s = 0; s <= SILENT; s++)
        side_close(&peers[s]);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, 0);
}

/* First by the reserve; then by what replaces that which lost peers hold. */
static void others_can_be_written_to(void)
{
    static struct stepaf_post it;
    struct stepaf_post *again = &it;

    begin_silence();
    CU_ASSERT_EQUAL(side_say(&a, SILENT, 1), STEPAF_POST_SENT);
    CU_ASSERT_TRUE(fabric_until_messages(live, &a, 1));
    go_on(TIMEOUT_MS * 3, true);
    CU_ASSERT_EQUAL(a.n_lost, SILENT);
    CU_ASSERT_EQUAL(live->n_lost, 0);
    for (int round = 0; round < 2 * POSTS; round++) {
        (void)send_to(SILENT, &it);
        for (int i = 0; i < TRIES && it.state == STEPAF_POST_QUEUED; i++) {
            (void)side_progress(&a);
            (void)side_progress(live);
            (void)side_ops->post(&again, 1);
        }
        CU_ASSERT_TRUE(fabric_until_messages(live, &a, 2u + (unsigned)round));
    }
    CU_ASSERT_PTR_NOT_NULL_FATAL(ofi_of(&a)->pool.more);
    CU_ASSERT_PTR_NULL(ofi_of(&a)->pool.more->next);
    go_on(20, true);
    CU_ASSERT_PTR_NULL(ofi_of(&a)->pool.more->next); /* it is enough */
    CU_ASSERT_EQUAL(a.up.dropped_malformed, 0);
    end_silence();
}

/* Its network card takes in what is written to it. */
static void who_only_computes_is_not_lost(void)
{
    begin_silence();
    go_on(TIMEOUT_MS * 3, false);
    CU_ASSERT_EQUAL(a.n_lost, SILENT);
    CU_ASSERT_FALSE(a.links[SILENT]->dead);
    end_silence();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what was taken before a full queue is rung for",
         what_was_taken_before_a_full_queue_is_rung_for},
        {"what was taken by a lost peer is rung for", what_was_taken_by_a_lost_peer_is_rung_for},
        {"the last peer is rung for", the_last_peer_is_rung_for},
        {"a short queue rings in time", a_short_queue_rings_in_time},
        {"others can be written to", others_can_be_written_to},
        {"who only computes is not lost", who_only_computes_is_not_lost},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
