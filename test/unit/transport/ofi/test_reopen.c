/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric: a process that takes a lost peer's place gets a link of its own, and nothing that its
 * predecessor still writes changes anything. */
#include <stdlib.h>
#include <string.h>

#include "three.h"

enum { ROOM = 4096, PIECE = 1024, ROUNDS = 40 };

static struct side d; /* takes b's place */
static struct side *const four[] = {&a, &b, &c, &d};

static void take_in_four(void)
{
    for (int i = 0; i < 300; i++)
        for (unsigned s = 0; s < 4; s++)
            if (four[s]->transport)
                (void)side_progress(four[s]);
}

static void open_successor(void)
{
    fabric_open(&d, 1);
    d.env.ofi_peer_timeout_us = 600000000;
}

static void close_side(struct side *side)
{
    side_close(side);
    side->transport = NULL;
}

/* The rest of the commit that admits the successor. */
static void join_successor(void)
{
    struct side *const sides[] = {&a, &c, &d};
    struct stepaf_pack pack = {0};

    side_ops->pack_address(a.transport, &pack); /* before any rank connects */
    side_ops->disconnect(a.links[0]);
    a.links[0] = NULL;
    open_successor();
    side_must(!side_connect(&a, 0, &d, 0, 1, NULL), "connect");
    side_must(!side_connect(&d, 0, &a, 0, 1, &pack), "connect");
    free(pack.data);
    fabric_prove(sides, 3);
}

static enum stepaf_post_state post_to(struct side *from, uint32_t peer,
                                      const struct stepaf_mem *own, struct stepaf_rmem *there,
                                      uint8_t byte)
{
    struct stepaf_xfer xfer = {
        .src = own->base, .src_mem = own, .bytes = PIECE, .dst = there, .dst_offset = PIECE};
    struct stepaf_post post = {.link = from->links[peer],
                               .xfer = &xfer,
                               .n_xfer = 1,
                               .msg = {.type = STEPAF_MSG_START, .seq = byte}};
    struct stepaf_post *posts[] = {&post};

    memset(own->base, byte, PIECE);
    (void)side_ops->post(posts, 1);
    for (int i = 0; i < 100 && post.state == STEPAF_POST_POSTED; i++)
        take_in_four();
    side_ops->retire(&post);
    return (enum stepaf_post_state)post.state;
}

/* Return whether a write of @a from's has arrived at @a to, and nothing else has. */
static bool writes(struct side *from, uint32_t peer, struct side *to, const struct stepaf_mem *own,
                   struct stepaf_rmem *there, const struct stepaf_mem *target)
{
    static uint8_t byte;
    uint8_t expected[PIECE];
    unsigned n = to->n_messages;

    memset(expected, ++byte, PIECE);
    if (post_to(from, peer, own, there, byte) != STEPAF_POST_SENT)
        return false;
    take_in_four();
    return to->n_messages == n + 1 && to->messages[n].seq == byte &&
           !memcmp((const uint8_t *)target->base + PIECE, expected, PIECE);
}

static void lose_first(void)
{
    a.up.lost(&a.up, a.links[0], "it is gone");
}

static void begin_wide_or_not(bool is_wide)
{
    if (is_wide)
        begin_wide();
    else
        begin();
}

static void successor_connects(bool is_wide)
{
    begin_wide_or_not(is_wide);
    const struct stepaf_mem *at_a = fabric_memory(&a, ROOM), *at_b = fabric_memory(&b, ROOM);
    const struct stepaf_mem *at_c = fabric_memory(&c, ROOM);
    struct stepaf_rmem *b_a = side_import(&b, 0, &a, at_a), *c_a = side_import(&c, 0, &a, at_a);
    for (int i = 0; i < ROUNDS; i++)
        CU_ASSERT_TRUE(writes(&b, 0, &a, at_b, b_a, at_a));
    lose_first();
    int n_open = ofi_fabric.n_open, n_addresses = ofi_fabric.n_addresses;
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, n_open + 2); /* the memory, and slots */
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    CU_ASSERT_EQUAL(ofi_fabric.n_open, n_open + 2);
    CU_ASSERT_TRUE(writes(&c, 0, &a, at_c, c_a, at_a)); /* should the commit be rejected */
    side_ops->release_mem(c.links[0], c_a);
    c_a = side_import(&c, 0, &a, at_a);
    join_successor();
    CU_ASSERT_EQUAL(ofi_fabric.n_open, n_open + 2 - 1 + 5 + 1 + 1); /* what d has opened */
    CU_ASSERT_EQUAL(ofi_fabric.n_addresses, n_addresses + 2 - 1);   /* a has forgotten b */
    const struct stepaf_mem *at_d = fabric_memory(&d, ROOM);
    struct stepaf_rmem *d_a = side_import(&d, 0, &a, at_a), *a_d = side_import(&a, 0, &d, at_d);
    for (int i = 0; i < ROUNDS; i++) {
        CU_ASSERT_TRUE(writes(&d, 0, &a, at_d, d_a, at_a));
        CU_ASSERT_TRUE(writes(&a, 0, &d, at_a, a_d, at_d));
        CU_ASSERT_TRUE(writes(&c, 0, &a, at_c, c_a, at_a));
        check_link(&c, 1);
    }
    CU_ASSERT(a.n_lost == 1 && !d.n_lost && !c.n_lost && !a.up.dropped_malformed);
    side_ops->release_mem(b.links[0], b_a);
    side_ops->release_mem(c.links[0], c_a);
    side_ops->release_mem(d.links[0], d_a);
    side_ops->release_mem(a.links[0], a_d);
    close_side(&d);
    end();
}

static void a_successor_connects(void)
{
    successor_connects(false);
    successor_connects(true);
}

/* What the predecessor sends, or has sent, is not the successor's, and its keys open nothing. */
static void predecessor_writes(bool is_wide)
{
    begin_wide_or_not(is_wide);
    const struct stepaf_mem *at_a = fabric_memory(&a, ROOM), *at_b = fabric_memory(&b, ROOM);
    struct stepaf_rmem *b_a = side_import(&b, 0, &a, at_a);
    unsigned n = a.n_messages;
    ofi_fabric.holds = true;
    CU_ASSERT_EQUAL(side_say(&b, 0, 1), STEPAF_POST_SENT); /* is under way */
    lose_first();
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    ofi_fabric.holds = false;
    join_successor();
    uint8_t before[ROOM];
    memcpy(before, at_a->base, ROOM);
    for (uint32_t i = 0; i < 4; i++)
        (void)side_say(&b, 0, 2 + i);
    take_in_four();
    CU_ASSERT_EQUAL(a.n_messages, n);
    CU_ASSERT(a.up.dropped_malformed > 0);
    CU_ASSERT_EQUAL(b.n_lost, 0);
    unsigned n_foreign = ofi_fabric.n_foreign;
    (void)post_to(&b, 0, at_b, b_a, 0xee);
    CU_ASSERT_EQUAL(ofi_fabric.n_foreign, n_foreign + 1);
    CU_ASSERT_EQUAL(b.n_lost, 1);
    CU_ASSERT(!memcmp(at_a->base, before, ROOM));
    CU_ASSERT_EQUAL(a.n_messages, n);
    const struct stepaf_mem *at_d = fabric_memory(&d, ROOM);
    struct stepaf_rmem *d_a = side_import(&d, 0, &a, at_a);
    for (int i = 0; i < ROUNDS; i++)
        CU_ASSERT_TRUE(writes(&d, 0, &a, at_d, d_a, at_a));
    CU_ASSERT(a.n_lost == 1 && !d.n_lost);
    side_ops->release_mem(b.links[0], b_a);
    side_ops->release_mem(d.links[0], d_a);
    close_side(&d);
    end();
}

static void the_predecessor_writes_in_vain(void)
{
    predecessor_writes(false);
    predecessor_writes(true);
}

/* Writes to the predecessor that end late, or by an error, are not the successor's. @a by_device: a
 * device reads their sources, so that registrations stay until they have ended. */
static void complete_late(bool by_device)
{
    begin();
    if (!by_device)
        ofi_of(&a)->rails[0].info->domain_attr->mr_mode &= ~FI_MR_LOCAL;
    const struct stepaf_mem *at_a = fabric_memory(&a, ROOM), *at_b = fabric_memory(&b, ROOM);
    struct stepaf_rmem *a_b = side_import(&a, 0, &b, at_b);
    struct stepaf_xfer xfer = {
        .src = at_a->base, .src_mem = at_a, .bytes = PIECE, .dst = a_b, .dst_offset = 0};
    struct stepaf_post post = {.link = a.links[0], .xfer = &xfer, .n_xfer = 1};
    struct stepaf_post *posts[] = {&post};
    uint32_t peer = 99;
    int n_addresses = ofi_fabric.n_addresses;
    (void)side_ops->post(posts, 1);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_POSTED);
    lose_first();
    ofi_fabric.dead = ofi_fabric.stuck_to = 1u << ofi_fabric_number(&b);
    side_ops->retire(&post);
    if (by_device) {
        CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_ERR_TRANSPORT);
        UNIT_STRING(stepaf_last_error()->text, "ofi: writes do not complete");
        ofi_fabric.stuck_to = 0;
        take_in_four();
    }
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    if (!by_device) {
        CU_ASSERT_FALSE(side_ops->is_quiet(a.transport, true, &peer));
        CU_ASSERT_EQUAL(peer, 0);
    }
    side_ops->release_mem(a.links[0], a_b);
    join_successor();
    if (!by_device) {
        CU_ASSERT_EQUAL(ofi_fabric.n_addresses, n_addresses + 2); /* b's is in use */
        ofi_fabric.stuck_to = 0;
        take_in_four();
        side_ops->shrink(a.transport);
    }
    CU_ASSERT_EQUAL(ofi_fabric.n_addresses, n_addresses + 2 - 1);
    CU_ASSERT_TRUE(side_ops->is_quiet(a.transport, true, &peer));
    CU_ASSERT_EQUAL(a.n_lost, 1);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_POSTED); /* nobody has touched it */
    check_link(&d, 0);
    check_link(&c, 1);
    close_side(&d);
    end();
}

static void late_completions_are_not_the_successors(void)
{
    complete_late(false);
    complete_late(true);
}

/* While reopen waits for writes, it finds that another peer is gone. */
static void a_peer_is_lost_meanwhile(void)
{
    begin();
    lose_first();
    CU_ASSERT_EQUAL(side_say(&a, 1, 7), STEPAF_POST_SENT);
    ofi_fabric.dead = 1u << ofi_fabric_number(&c);
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    CU_ASSERT_EQUAL(a.n_lost, 2);
    for (uint32_t p = 0; p < 2; p++) {
        const struct stepaf_ofi_link *link = stepaf_ofi_link(ofi_of(&a), p);
        CU_ASSERT(!link->shared.base.ops);
        CU_ASSERT(link->shared.sender - link->slots->first < link->slots->n);
    }
    CU_ASSERT(stepaf_ofi_slot(stepaf_ofi_link(ofi_of(&a), 0), true, 0) !=
              stepaf_ofi_slot(stepaf_ofi_link(ofi_of(&a), 1), true, 0));
    end();
}

/* A process that was given up while a hello to it was in flight keeps nobody out. */
static void a_process_that_was_cut_keeps_nobody_out(void)
{
    begin();
    lose_first();
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    side_ops->disconnect(a.links[0]);
    open_successor();
    CU_ASSERT_EQUAL(side_connect(&a, 0, &d, 0, 1, NULL), NULL);
    ofi_fabric.stuck_to = 1u << ofi_fabric_number(&d);
    CU_ASSERT_TRUE(
        stepaf_ofi_control((struct stepaf_fabric_link *)a.links[0], STEPAF_FABRIC_HELLO));
    side_ops->disconnect(a.links[0]);
    close_side(&d);
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    ofi_fabric.stuck_to = 0;
    join_successor();
    check_link(&d, 0);
    check_link(&c, 1);
    close_side(&d);
    end();
}

/* A provider that gives memory the same key again: what a live process knows does not end. */
static void the_same_keys_admit_nobody(void)
{
    begin();
    const struct stepaf_mem *at_a = fabric_memory(&a, ROOM), *at_c = fabric_memory(&c, ROOM);
    struct stepaf_rmem *c_a = side_import(&c, 0, &a, at_a);
    lose_first();
    ofi_fabric.same_keys = true;
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_ERR_TRANSPORT);
    UNIT_STRING(stepaf_last_error()->text,
                "ofi: the provider gives memory the same key again (FI_MR_CACHE_MONITOR=disabled)");
    CU_ASSERT_TRUE(writes(&c, 0, &a, at_c, c_a, at_a));
    fabric_link(&a, 0)->has_ended = true; /* this host has seen the process end */
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    join_successor();
    CU_ASSERT_TRUE(writes(&c, 0, &a, at_c, c_a, at_a));
    check_link(&d, 0);
    side_ops->release_mem(c.links[0], c_a);
    close_side(&d);
    end();
}

/* Over cxi a key ends with its registration only if a variable says so. */
static void over_cxi_keys_are_to_end(void)
{
    static const char *const names[] = {"cxi", NULL};
    static const char *const settings[] = {"STEPAF_TRANSPORTS", "ofi", "STEPAF_OFI_PROVIDER", "cxi",
                                           NULL};

    setenv("FI_CXI_ENABLE_WRITEDATA", "1", 1);
    ofi_fabric_reset(25);
    ofi_fabric.names = names;
    ofi_fabric.only_writedata = true;
    ofi_fabric.cq_data_size = 8;
    side_settings = settings;
    fabric_open_three(all);
    lose_first();
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "only with FI_CXI_MR_MATCH_EVENTS=1");
    setenv("FI_CXI_MR_MATCH_EVENTS", "1", 1);
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    join_successor();
    check_link(&d, 0);
    check_link(&c, 1);
    close_side(&d);
    end();
    side_settings = NULL;
    unsetenv("FI_CXI_MR_MATCH_EVENTS");
    unsetenv("FI_CXI_ENABLE_WRITEDATA");
}

/* Soft-RoCE has shown that survivors' operations then end by their deadlines. */
static void over_verbs_rxm_nobody_returns(void)
{
    begin();
    lose_first();
    ofi_of(&a)->ends_together = true;
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "use transport verbs");
    ofi_of(&a)->ends_together = false;
    check_link(&c, 1);
    end();
}

/* Commits that are rejected, and more deaths between them: peers go on with the keys that they
 * have, and each successor gets others than all before it. */
static void keys_outlive_rejected_commits(void)
{
    begin();
    const struct stepaf_mem *at_a = fabric_memory(&a, ROOM), *at_c = fabric_memory(&c, ROOM);
    struct stepaf_rmem *c_a = side_import(&c, 0, &a, at_a);
    lose_first();
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    join_successor();
    CU_ASSERT_FALSE(writes(&c, 0, &a, at_c, c_a, at_a)); /* it has not imported the new key */
    side_ops->release_mem(c.links[0], c_a);
    CU_ASSERT_EQUAL(c.n_lost, 1);
    close_side(&c);
    a.up.lost(&a.up, a.links[1], "it has ended");
    const struct stepaf_mem *at_d = fabric_memory(&d, ROOM);
    struct stepaf_rmem *d_a = side_import(&d, 0, &a, at_a);
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK); /* rejected */
    struct stepaf_rmem *unused = side_import(&d, 0, &a, at_a);
    CU_ASSERT_TRUE(writes(&d, 0, &a, at_d, d_a, at_a));
    side_ops->disconnect(a.links[1]);
    fabric_open(&c, 1);
    CU_ASSERT_EQUAL(side_connect(&a, 1, &c, 0, 1, NULL), NULL);
    a.up.lost(&a.up, a.links[1], "it has ended at once"); /* the commit fails */
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    CU_ASSERT_TRUE(writes(&d, 0, &a, at_d, d_a, at_a));
    unsigned n_lost = d.n_lost;
    CU_ASSERT_FALSE(writes(&d, 0, &a, at_d, unused, at_a));
    CU_ASSERT_EQUAL(d.n_lost, n_lost + 1);
    side_ops->release_mem(d.links[0], d_a);
    side_ops->release_mem(d.links[0], unused);
    close_side(&d);
    end();
}

/* One successor after the other, more than share a piece of memory for slots. */
static void many_successors_connect(void)
{
    begin();
    const struct stepaf_mem *at_a = fabric_memory(&a, ROOM);
    int n_open = ofi_fabric.n_open;
    for (int i = 0; i < ROUNDS; i++) {
        a.n_lost = 0;
        lose_first();
        CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
        join_successor();
        const struct stepaf_mem *at_d = fabric_memory(&d, ROOM);
        struct stepaf_rmem *d_a = side_import(&d, 0, &a, at_a);
        CU_ASSERT_TRUE(writes(&d, 0, &a, at_d, d_a, at_a));
        check_link(&d, 0);
        side_ops->release_mem(d.links[0], d_a);
        close_side(&d);
    }
    CU_ASSERT_EQUAL(ofi_fabric.n_open, n_open + 3); /* slots: 15 of 40 share one memory */
    CU_ASSERT_EQUAL(ofi_of(&a)->shared.n_senders, 2 + ROUNDS);
    check_link(&c, 1);
    end();
}

/* Whatever cannot be had, memory stays registered as it was, and the place stays empty with a
 * reason. */
static void without_room_the_place_stays_empty(void)
{
    begin();
    const struct stepaf_mem *at_a = fabric_memory(&a, ROOM), *at_c = fabric_memory(&c, ROOM);
    struct stepaf_rmem *c_a = side_import(&c, 0, &a, at_a);
    lose_first();
    int n_open = ofi_fabric.n_open;
    ofi_fabric.refuse_call = 1; /* the memory */
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "ofi: ");
    CU_ASSERT_EQUAL(ofi_fabric.n_open, n_open);
    CU_ASSERT_TRUE(writes(&c, 0, &a, at_c, c_a, at_a));
    open_successor();
    const char *why = side_connect(&a, 0, &d, 0, 1, NULL);
    UNIT_STRING(why, "there is no room for another process in its place");
    ofi_fabric.refuse_call = 2; /* the slots */
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_ERR_TRANSPORT);
    CU_ASSERT_TRUE(writes(&c, 0, &a, at_c, c_a, at_a));
    a.links[0] = &ofi_of(&a)->shared.links[0]->base; /* as the core has kept it */
    close_side(&d);
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    side_ops->release_mem(c.links[0], c_a);
    c_a = side_import(&c, 0, &a, at_a);
    join_successor();
    CU_ASSERT_TRUE(writes(&c, 0, &a, at_c, c_a, at_a));
    check_link(&d, 0);
    side_ops->release_mem(c.links[0], c_a);
    close_side(&d);
    end();
}

/* What an address says of sender numbers is not trusted. */
static void malformed_numbers_are_refused(void)
{
    begin();
    lose_first();
    CU_ASSERT_EQUAL(side_ops->reopen(a.transport), STEPAF_OK);
    open_successor();
    struct stepaf_pack pack = {0};
    side_ops->pack_address(a.transport, &pack);
    const uint32_t number = 2; /* the third there */
    size_t at = 0;
    for (; at + 8 <= pack.bytes; at++)
        if (!memcmp(pack.data + at, (uint32_t[]){0, number}, 8) &&
            !memcmp(pack.data + at - 4, (uint32_t[]){1}, 4))
            break;
    CU_ASSERT_FATAL(at + 8 <= pack.bytes);
    memcpy(pack.data + at + 4, (uint32_t[]){STEPAF_FABRIC_PEERS}, 4);
    UNIT_STRING(side_connect(&d, 0, &a, 0, 1, &pack), "its address is malformed");
    memcpy(pack.data + at + 4, &number, 4);
    memcpy(pack.data + at - 4, (uint32_t[]){UINT32_MAX}, 4); /* more entries than there are */
    UNIT_STRING(side_connect(&d, 0, &a, 0, 1, &pack), "its address is malformed");
    memcpy(pack.data + at - 4, (uint32_t[]){1}, 4);
    CU_ASSERT_EQUAL(side_connect(&d, 0, &a, 0, 1, &pack), NULL);
    CU_ASSERT_EQUAL(ofi_link(&d, 0)->shared.sender_at_peer, number);
    free(pack.data);
    close_side(&d);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a successor connects", a_successor_connects},
        {"the predecessor writes in vain", the_predecessor_writes_in_vain},
        {"late completions are not the successor's", late_completions_are_not_the_successors},
        {"a peer is lost meanwhile", a_peer_is_lost_meanwhile},
        {"a process that was cut keeps nobody out", a_process_that_was_cut_keeps_nobody_out},
        {"the same keys admit nobody", the_same_keys_admit_nobody},
        {"over cxi keys are to end", over_cxi_keys_are_to_end},
        {"over verbs;ofi_rxm nobody returns", over_verbs_rxm_nobody_returns},
        {"keys outlive rejected commits", keys_outlive_rejected_commits},
        {"many successors connect", many_successors_connect},
        {"without room the place stays empty", without_room_the_place_stays_empty},
        {"malformed numbers are refused", malformed_numbers_are_refused},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
