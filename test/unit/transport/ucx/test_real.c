/* SPDX-License-Identifier: Apache-2.0 */
/* UCX itself, over TCP and over shared memory, with both ends in one process: tensors come in each
 * of the ways that a post may take, nothing that UCX opens has a number that the program may have
 * closed, and signals stay the program's. */
#include <signal.h>
#include <stdlib.h>

#include "ucx_fabric.h"
#include "unit.h"

enum { LARGE = 3 << 20, SKIP = 77, LAST_SIGNAL = 31 };

static struct side a, b;

static void begin(const char *transports)
{
    setenv("UCX_TLS", transports, 1);
    side_ops = &stepaf_ucx_ops;
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    if (strncmp(transports, "posix", 5) == 0)
        a.topo.node_id = b.topo.node_id = 1; /* as side_connect says of peers: its end is watched */
    fabric_join(&a, 0, &b, 0);
    fabric_prove((struct side *[]){&a, &b}, 2);
}

static void end(void)
{
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    CU_ASSERT_EQUAL(a.up.dropped_malformed + b.up.dropped_malformed, 0);
    side_close(&a);
    side_close(&b);
}

static bool exchange(uint32_t seq)
{
    return fabric_exchange(&a, &b, seq);
}

static bool all_are_fetched; /* as if they were for GPU memory */

/* A post of three tensors, of @a bytes in all. */
static void send_tensors(struct stepaf_mem *source, struct stepaf_mem *target, uint32_t bytes)
{
    struct stepaf_rmem *rmem = side_import(&a, 0, &b, target);
    struct stepaf_xfer xfers[3] = {
        {source->base, source, rmem, 0, bytes / 3},
        {NULL, NULL, rmem, 0, 0},
        {source->base + bytes / 3, source, rmem, bytes / 3, bytes - bytes / 3}};
    struct stepaf_post post = {.link = a.links[0], .xfer = xfers, .n_xfer = 3}, *posts[] = {&post};
    unsigned n = b.n_messages;

    ((struct stepaf_ucx_rmem *)rmem)->is_gpu = all_are_fetched;
    ucx_link(&a, 0)->has_gpu = all_are_fetched;
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = bytes};
    for (uint32_t i = 0; i < bytes; i++)
        source->base[i] = (uint8_t)(i * 7 + bytes);
    memset(target->base, 0, LARGE);
    while (side_ops->post(posts, 1))
        (void)side_progress(&a);
    CU_ASSERT_TRUE(fabric_until_messages(&b, &a, n + 1));
    CU_ASSERT_EQUAL((b.messages[n].seq ^ bytes) & STEPAF_IMM_SEQ_MASK, 0); /* what 32 bits say */
    CU_ASSERT_EQUAL(memcmp(source->base, target->base, bytes), 0);
    for (int i = 0; i < 1000000 && post.state != STEPAF_POST_SENT; i++) {
        (void)side_progress(&a);
        (void)side_progress(&b);
    }
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    side_ops->release_mem(a.links[0], rmem);
}

static void messages_and_tensors_come_by(const char *transports, const char *name)
{
    static const uint32_t sizes[] = {3, 512, 513, 5000, 30000, 200000, LARGE};

    begin(transports);
    UNIT_STRING(a.links[0]->name, name);
    struct stepaf_mem *source = fabric_memory(&a, LARGE), *target = fabric_memory(&b, LARGE);
    for (uint32_t seq = 0; seq < 100; seq++)
        CU_ASSERT_TRUE(exchange(seq));
    for (int way = 0; way < 2; way++) {
        all_are_fetched = way == 1;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            send_tensors(source, target, sizes[i]);
    }
    end();
}

static void messages_and_tensors_come(void)
{
    messages_and_tensors_come_by("tcp,self", "ucx;tcp");
}

static void shared_memory_does_as_well(void)
{
    messages_and_tensors_come_by("posix,self", "ucx;posix");
}

/* In a child that has closed the low numbers. */
static int live_closed(void)
{
    begin("tcp,self");
    if (!fabric_low_are_free())
        return 1;
    for (uint32_t seq = 0; seq < 20; seq++)
        if (!exchange(seq))
            return 2;
    side_close(&a);
    side_close(&b);
    return fabric_low_are_free() ? 0 : 3;
}

static void nothing_has_a_low_number(void)
{
    fabric_ask_low_numbers(live_closed);
}

/* The other end closes, and is watched by nothing but UCX. */
static void an_end_without_a_word_is_noticed(void)
{
    begin("tcp,self");
    CU_ASSERT_TRUE(exchange(1));
    side_close(&b);
    for (int i = 0; i < 100000 && !a.n_lost; i++)
        (void)side_progress(&a);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_CONTAINS(a.lost_reason, "UCX: ");
    side_close(&a);
}

static struct sigaction before[LAST_SIGNAL + 1];

static void note_signals(void)
{
    for (int i = 1; i <= LAST_SIGNAL; i++)
        (void)sigaction(i, NULL, &before[i]);
}

static void signals_are_the_programs(void)
{
    for (int i = 1; i <= LAST_SIGNAL; i++) {
        struct sigaction now;
        if (!sigaction(i, NULL, &now))
            CU_ASSERT_EQUAL(now.sa_handler, before[i].sa_handler);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"signals are the program's", signals_are_the_programs},
        {"messages and tensors come", messages_and_tensors_come},
        {"shared memory does as well", shared_memory_does_as_well},
        {"nothing has a low number", nothing_has_a_low_number},
        {"an end without a word is noticed", an_end_without_a_word_is_noticed},
        CU_TEST_INFO_NULL,
    };
    char reason[STEPAF_REASON_MAX] = "";

    note_signals();
    if (!stepaf_ucx_library(reason)) {
        printf("SKIP: %s\n", reason);
        return SKIP;
    }
    return unit_run(tests);
}
