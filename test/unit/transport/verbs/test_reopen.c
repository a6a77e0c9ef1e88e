/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA: queue pairs for a process that takes a lost peer's place; and peers that a rank must not
 * lose while it does not read their links. */
#include <time.h>

#include "unit.h"
#include "verbs_side.h"

enum { BYTES = 512, RECEIVES = 64 };

static struct vside a, b, c; /* c takes b's place */

static void begin(const char *settings)
{
    verbs_device_reset();
    verbs_device.n_devices = 2;
    vside_settings = settings;
    vside_open(&a, 2);
    vside_open(&b, 1);
    vside_join(&a, &b);
}

static void end(void)
{
    vside_close(&a);
    vside_close(&b);
    CU_ASSERT_EQUAL(verbs_device.n_open, 0);
}

static struct stepaf_mem *region_of(struct vside *side)
{
    return side->n_regions ? &side->regions[0] : vside_memory(side, BYTES);
}

/* A post of @a from, its plan @a plan, into memory of @a to. */
static enum stepaf_post_state write_to(struct vside *from, struct vside *to, uint16_t plan)
{
    struct stepaf_rmem *rmem = vside_import(from, 0, to, region_of(to));
    struct stepaf_xfer xfer;
    (void)region_of(from);
    struct stepaf_post post = vside_post(from, 0, &xfer, 1, 64, rmem);

    post.msg.plan = plan;
    (void)vside_send(&post);
    while (post.state == STEPAF_POST_POSTED)
        (void)vside_progress(from);
    stepaf_verbs_ops.release_mem(from->links[0], rmem);
    return (enum stepaf_post_state)post.state;
}

/* The core gives the link up, and everything that hangs on it. */
static void part(struct vside *side)
{
    stepaf_verbs_ops.disconnect(side->links[0]);
    side->links[0] = NULL;
}

static void lose(struct vside *side)
{
    side->up.lost(&side->up, side->links[0], "it is gone");
    stepaf_verbs_ops.fence(side->links[0]);
}

static bool has_pair(const struct vside *side, uint32_t peer)
{
    return stepaf_verbs_qps_are_there((const struct stepaf_verbs *)side->transport, peer);
}

static void another_process_takes_the_place(const char *settings)
{
    begin(settings);
    stepaf_verbs_ops.shrink(a.transport); /* nobody is the second peer */
    CU_ASSERT(has_pair(&a, 0) && !has_pair(&a, 1));
    CU_ASSERT_EQUAL(write_to(&a, &b, 3), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(write_to(&b, &a, 4), STEPAF_POST_SENT); /* is never read */
    lose(&a);
    int n_open = verbs_device.n_open;
    CU_ASSERT_EQUAL(stepaf_verbs_ops.reopen(a.transport), STEPAF_OK);
    CU_ASSERT(has_pair(&a, 0) && has_pair(&a, 1)); /* whoever may come */
    CU_ASSERT_EQUAL(verbs_device.n_open,
                    n_open + (int)((struct stepaf_verbs *)a.transport)->n_paths);
    /* Once more, as in a commit that admits nobody, is nothing new; nor is the end of the dead
     * link. */
    CU_ASSERT_EQUAL(stepaf_verbs_ops.reopen(a.transport), STEPAF_OK);
    stepaf_verbs_ops.fence(a.links[0]);
    part(&a);
    CU_ASSERT(has_pair(&a, 0));
    vside_open(&c, 1);
    vside_join(&a, &c);
    stepaf_verbs_ops.shrink(a.transport);
    CU_ASSERT(has_pair(&a, 0) && !has_pair(&a, 1));
    unsigned n_before = a.n_messages;
    CU_ASSERT_EQUAL(write_to(&a, &c, 5), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(write_to(&c, &a, 6), STEPAF_POST_SENT);
    (void)vside_progress(&a);
    (void)vside_progress(&c);
    CU_ASSERT_EQUAL_FATAL(a.n_messages, n_before + 1);
    CU_ASSERT_EQUAL(a.messages[n_before].plan, 6);
    CU_ASSERT_EQUAL(c.messages[0].plan, 5);
    /* More than there are receives: its counts begin anew. */
    for (int i = 0; i < 3 * RECEIVES; i++) {
        CU_ASSERT_EQUAL(write_to(&a, &c, 7), STEPAF_POST_SENT);
        (void)vside_progress(&c);
        (void)vside_progress(&a);
    }
    CU_ASSERT_EQUAL(c.n_messages, 1 + 3 * RECEIVES);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    CU_ASSERT_EQUAL(c.n_lost, 0);
    CU_ASSERT_EQUAL(verbs_device.n_overflow + verbs_device.n_unready, 0);
    vside_close(&c);
    end();
}

static void over_one_rail(void)
{
    another_process_takes_the_place("VERBS_RECEIVES=64");
}

static void over_two_rails(void)
{
    another_process_takes_the_place("VERBS_RECEIVES=64 NET_DEVICES=fake0,fake1 VERBS_QPS=2");
}

/* Nobody takes the place: the queue pairs go, and come again. */
static void nobody_takes_the_place(void)
{
    begin("");
    lose(&a);
    stepaf_verbs_ops.shrink(a.transport);
    CU_ASSERT_EQUAL(stepaf_verbs_ops.reopen(a.transport), STEPAF_OK);
    int n_open = verbs_device.n_open;
    stepaf_verbs_ops.shrink(a.transport);
    CU_ASSERT(!has_pair(&a, 0) && !has_pair(&a, 1));
    CU_ASSERT_EQUAL(verbs_device.n_open, n_open - 2);
    CU_ASSERT_EQUAL(stepaf_verbs_ops.reopen(a.transport), STEPAF_OK);
    CU_ASSERT(has_pair(&a, 0));
    part(&a);
    end();
}

/* The device has none left: the peer is told so, by its number 0, and neither end connects. */
static void without_queue_pairs_another_transport_is_taken(void)
{
    begin("");
    lose(&a);
    verbs_device.refuse_qp = 1;
    CU_ASSERT_EQUAL(stepaf_verbs_ops.reopen(a.transport), STEPAF_OK);
    CU_ASSERT(!has_pair(&a, 0) && has_pair(&a, 1));
    part(&a);
    vside_open(&c, 1);
    struct stepaf_pack pack = vside_pack(&a);
    const char *why = vside_connect(&c, 0, &a, 0, &pack);
    UNIT_CONTAINS(why, "has no queue pairs");
    why = vside_connect(&a, 0, &c, 0, NULL);
    UNIT_CONTAINS(why, "has no queue pairs");
    free(pack.data);
    vside_close(&c);
    end();
}

/* Look after peers without reading links, until a peer is lost, or has acknowledged as many as @a
 * n, or something was set aside if @a n is 0. On a busy machine many looks are so late that they
 * count for nothing. */
static void look(struct vside *side, uint32_t n)
{
    static const struct timespec pause = {.tv_nsec = 15000000};
    const struct stepaf_verbs *verbs = (struct stepaf_verbs *)side->transport;

    for (int i = 0; i < 1000 && !side->n_lost; i++) {
        stepaf_verbs_ops.check_peers(side->transport);
        if (n ? vside_link(side, 0)->paths[0].wr.done >= n : verbs->aside.n > 0)
            return;
        (void)nanosleep(&pause, NULL);
    }
}

/* As in a commit that waits for others: peers are looked after, and links not read. Receives are
 * posted anew no sooner. */
static void a_peer_that_is_not_read_is_not_lost(void)
{
    begin("VERBS_PEER_TIMEOUT_US=40000 VERBS_RECEIVES=64");
    for (uint16_t i = 0; i < 20; i++)
        CU_ASSERT_EQUAL(write_to(&b, &a, i), STEPAF_POST_SENT);
    look(&a, 3);
    CU_ASSERT_EQUAL(a.n_lost, 0);
    CU_ASSERT(vside_link(&a, 0)->paths[0].wr.done >= 3);
    CU_ASSERT_EQUAL(a.n_messages, 0);
    for (uint16_t i = 20; i < 40; i++)
        CU_ASSERT_EQUAL(write_to(&b, &a, i), STEPAF_POST_SENT);
    (void)vside_progress(&a);
    (void)vside_progress(&a);
    CU_ASSERT_EQUAL_FATAL(a.n_messages, 40);
    for (uint16_t i = 0; i < 40; i++)
        CU_ASSERT_EQUAL(a.messages[i].plan, i);
    /* One that is silent is lost all the same. */
    verbs_device.silent = 1;
    look(&a, UINT32_MAX);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "it has acknowledged nothing");
    end();
}

/* What was set aside of a peer that is lost then is never heard of. */
static void what_is_aside_ends_with_the_link(void)
{
    begin("VERBS_PEER_TIMEOUT_US=40000");
    CU_ASSERT_EQUAL(write_to(&b, &a, 1), STEPAF_POST_SENT);
    look(&a, 0);
    CU_ASSERT(((struct stepaf_verbs *)a.transport)->aside.n > 0);
    lose(&a);
    CU_ASSERT_EQUAL(stepaf_verbs_ops.reopen(a.transport), STEPAF_OK);
    CU_ASSERT_EQUAL(((struct stepaf_verbs *)a.transport)->aside.n, 0);
    part(&a);
    vside_open(&c, 1);
    vside_join(&a, &c);
    (void)vside_progress(&a);
    CU_ASSERT_EQUAL(a.n_messages, 0);
    vside_close(&c);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"over one rail", over_one_rail},
        {"over two rails", over_two_rails},
        {"nobody takes the place", nobody_takes_the_place},
        {"without queue pairs another transport is taken",
         without_queue_pairs_another_transport_is_taken},
        {"a peer that is not read is not lost", a_peer_that_is_not_read_is_not_lost},
        {"what is aside ends with the link", what_is_aside_ends_with_the_link},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
