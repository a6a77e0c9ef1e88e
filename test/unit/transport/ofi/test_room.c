/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric: writes that are refused in the middle of a post, and what waits for a doorbell then. */
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

int main(void)
{
    CU_TestInfo tests[] = {
        {"what was taken before a full queue is rung for",
         what_was_taken_before_a_full_queue_is_rung_for},
        {"what was taken by a lost peer is rung for", what_was_taken_by_a_lost_peer_is_rung_for},
        {"the last peer is rung for", the_last_peer_is_rung_for},
        {"a short queue rings in time", a_short_queue_rings_in_time},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
