/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory, both ends in one process: the ring, and the three ways of writing. */
#include <stdlib.h>
#include <unistd.h>

#include "transport/side.h"
#include "unit.h"

enum { SLOTS = 4, FRAGMENT = 4096 };

static struct side a, b, c;

static void begin(const char *cma)
{
    side_cma = cma;
    side_open(&a, 1);
    side_open(&b, 1);
    side_join(&a, &b);
}

static void end(void)
{
    side_close(&a);
    side_close(&b);
}

static bool is_said(const struct stepaf_msg *msg, uint32_t seq)
{
    bool good = msg->type == STEPAF_MSG_START && msg->flags == 7 && msg->epoch == 0x1234 &&
                msg->plan == 0x5678 && msg->slot == 9 && msg->n == 3 && msg->seq == seq;

    for (uint32_t i = 0; i < STEPAF_MSG_WORDS; i++)
        good = good && msg->word[i] == seq * 31 + i;
    return good;
}

static void messages_arrive_whole_and_in_order(void)
{
    begin("off");
    for (uint32_t seq = 0; seq < 1000; seq++) { /* many times around */
        CU_ASSERT_EQUAL(side_say(&a, 0, seq), STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(side_say(&b, 0, ~seq), STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(side_progress(&b), 1);
        CU_ASSERT_EQUAL(side_progress(&a), 1);
        CU_ASSERT_TRUE(is_said(&b.messages[seq], seq));
        CU_ASSERT_TRUE(is_said(&a.messages[seq], ~seq));
        CU_ASSERT_EQUAL(side_progress(&a), 0);
    }
    CU_ASSERT(a.n_messages == 1000 && b.n_messages == 1000);
    end();
}

/* Only the words that a message names need to come; the rest of it always does. */
static void short_messages_are_whole(void)
{
    struct stepaf_post post, *posts[] = {&post};

    begin("off");
    for (uint32_t n = 0; n <= STEPAF_MSG_WORDS; n++) {
        post = (struct stepaf_post){.link = a.links[0]};
        post.msg =
            (struct stepaf_msg){.type = STEPAF_MSG_RELEASE, .slot = 5, .seq = n, .n_words = n};
        for (uint32_t i = 0; i < n; i++)
            post.msg.word[i] = n * 100 + i;
        stepaf_shm_ops.post(posts, 1);
        CU_ASSERT_EQUAL(side_progress(&b), 1);
        const struct stepaf_msg *msg = &b.messages[n];
        CU_ASSERT(msg->type == STEPAF_MSG_RELEASE && msg->slot == 5 && msg->seq == n);
        for (uint32_t i = 0; i < n; i++)
            CU_ASSERT_EQUAL(msg->word[i], n * 100 + i);
    }
    end();
}

static void a_full_ring_takes_no_more(void)
{
    uint32_t said = 0;

    begin("off");
    for (int round = 0; round < 50; round++) {
        int n = 0;
        while (side_say(&a, 0, said) == STEPAF_POST_SENT) {
            said++;
            n++;
        }
        CU_ASSERT_EQUAL(n, SLOTS);
        CU_ASSERT_EQUAL(side_say(&a, 0, said), STEPAF_POST_QUEUED);
        CU_ASSERT_EQUAL(side_progress(&b), SLOTS);
        CU_ASSERT_EQUAL(b.n_messages, said);
        CU_ASSERT_TRUE(is_said(&b.messages[said - 1], said - 1));
    }
    end();
}

/* The reader speaks up in time for the writer to go on before the ring is empty. */
static void a_slot_read_is_a_slot_free_soon(void)
{
    begin("off");
    for (uint32_t seq = 0; seq < SLOTS; seq++)
        CU_ASSERT_EQUAL(side_say(&a, 0, seq), STEPAF_POST_SENT);
    for (uint32_t seq = SLOTS; seq < 200; seq++) {
        CU_ASSERT_EQUAL(side_progress(&b), seq == SLOTS ? SLOTS : 1);
        CU_ASSERT_EQUAL(side_say(&a, 0, seq), STEPAF_POST_SENT);
    }
    end();
}

/* What the peer says of how far it has read is input. */
static void an_impossible_word_of_the_reader_is_not_believed(void)
{
    static const uint32_t lies[] = {SLOTS + 1, 1000, 0x80000000, UINT32_MAX, UINT32_MAX - SLOTS};

    begin("off");
    for (uint32_t seq = 0; seq < SLOTS; seq++)
        CU_ASSERT_EQUAL(side_say(&a, 0, seq), STEPAF_POST_SENT);
    struct stepaf_shm_link *link = (struct stepaf_shm_link *)b.links[0];
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        atomic_store(&link->tx_words->read, lies[i]);
        CU_ASSERT_EQUAL(side_say(&a, 0, SLOTS), STEPAF_POST_QUEUED);
    }
    atomic_store(&link->tx_words->read, 1);
    CU_ASSERT_EQUAL(side_say(&a, 0, SLOTS), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(side_say(&a, 0, SLOTS), STEPAF_POST_QUEUED);
    end();
}

static uint8_t *random_bytes(size_t bytes)
{
    static uint32_t random = 1;
    uint8_t *data = malloc(bytes + 1);

    for (size_t i = 0; data && i < bytes; i++) {
        random = random * 1664525u + 1013904223u;
        data[i] = (uint8_t)(random >> 24);
    }
    return data;
}

/* Post one tensor to an offset, taking in at the other end while there is no room. */
static int write_to(struct stepaf_link *link, struct side *receiver, const struct stepaf_rmem *rmem,
                    uint64_t offset, const uint8_t *src, uint32_t bytes)
{
    struct stepaf_xfer xfer = {.src = src, .dst = rmem, .dst_offset = offset, .bytes = bytes};
    struct stepaf_post post = {.link = link, .xfer = &xfer, .n_xfer = 1}, *posts[] = {&post};
    unsigned before = receiver->n_messages;
    int rounds = 0;

    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = bytes};
    do {
        stepaf_shm_ops.post(posts, 1);
        CU_ASSERT(post.state == STEPAF_POST_SENT || receiver->n_messages == before);
        side_progress(receiver);
    } while (post.state != STEPAF_POST_SENT && ++rounds < 1000);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(receiver->n_messages, before + 1);
    CU_ASSERT_EQUAL(receiver->messages[before].seq, bytes);
    return rounds;
}

/* Write tensors of many sizes; each must land as a whole, and not a byte beside it. */
static void check_sizes(struct side *from, struct side *to, bool shareable)
{
    static const uint32_t sizes[] = {0,    1,    63,    64,    4095,  4096,
                                     4097, 8192, 12289, 16384, 40000, 200001};
    struct stepaf_mem *region = side_memory(to, 210000, shareable);
    struct stepaf_rmem *rmem = side_import(from, 0, to, region);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *src = random_bytes(sizes[i]);
        size_t offset = 77 * i, wrong = 0;
        memset(region->base, 0x5a, region->bytes);
        (void)write_to(from->links[0], to, rmem, offset, src, sizes[i]);
        CU_ASSERT_EQUAL(memcmp(region->base + offset, src, sizes[i]), 0);
        for (size_t k = 0; k < region->bytes; k++)
            wrong += (k < offset || k >= offset + sizes[i]) && region->base[k] != 0x5a;
        CU_ASSERT_EQUAL(wrong, 0);
        free(src);
    }
    stepaf_shm_ops.release_mem(from->links[0], rmem);
}

static void shared_memory_is_written(void)
{
    begin("off");
    check_sizes(&a, &b, true);
    check_sizes(&b, &a, true);
    end();
}

static void pages_are_written_through_the_ring(void)
{
    size_t per_link, staging;

    begin("off");
    UNIT_STRING(a.links[0]->name, "shm;ring");
    stepaf_shm_ops.query_memory(a.transport, &per_link, &staging);
    CU_ASSERT_EQUAL(staging, 0);
    check_sizes(&a, &b, false);
    check_sizes(&b, &a, false);
    stepaf_shm_ops.query_memory(a.transport, &per_link, &staging);
    CU_ASSERT_EQUAL(staging, SLOTS * FRAGMENT);
    end();
}

static void pages_are_written_by_the_kernel(void)
{
    begin("auto");
    if (((struct stepaf_shm_link *)a.links[0])->cma) {
        UNIT_STRING(a.links[0]->name, "shm;cma");
        check_sizes(&a, &b, false);
        CU_ASSERT_FALSE(((struct stepaf_shm_link *)a.links[0])->staged);
    } else {
        puts("  (cross-memory attach is not permitted here)");
    }
    end();
}

/* Memory that is not there any more means a peer that is not there any more. */
static void pages_that_are_gone_lose_the_peer(void)
{
    struct stepaf_shm_rmem gone = {.base = {1, 4096}, .map = NULL, .address = 4096};
    struct stepaf_xfer xfer = {.src = "x", .dst = &gone.base, .bytes = 1};
    struct stepaf_post post = {.link = NULL, .xfer = &xfer, .n_xfer = 1}, *posts[] = {&post};

    begin("auto");
    if (((struct stepaf_shm_link *)a.links[0])->cma) {
        post.link = a.links[0];
        stepaf_shm_ops.post(posts, 1);
        CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(a.n_lost, 1);
        CU_ASSERT_EQUAL(side_say(&a, 0, 1), STEPAF_POST_SENT); /* for nobody */
        CU_ASSERT_EQUAL(a.n_lost, 1);
    }
    end();
}

/* Ranks of one role can be many more than of the other: each end has another number of peers. */
static void sides_with_other_numbers_of_peers_agree_on_places(void)
{
    for (int way = 0; way < 2; way++) {
        side_cma = "off";
        side_open(&a, way ? 1 : SIDE_PEERS);
        side_open(&b, way ? SIDE_PEERS : 1);
        struct side *many = way ? &b : &a, *one = way ? &a : &b;
        CU_ASSERT_PTR_NULL(side_connect(one, 0, many, 0, (uint32_t)getpid(), NULL));
        CU_ASSERT_PTR_NULL(side_connect(many, 0, one, 0, (uint32_t)getpid(), NULL));
        check_sizes(&a, &b, false);
        end();
    }
}

/* Two receivers of the same bytes: @a big is where the copies are interleaved. */
static void write_to_both(uint32_t bytes, bool second_is_full)
{
    struct stepaf_rmem *to_b = side_import(&a, 0, &b, &b.regions[0]);
    struct stepaf_rmem *to_c = side_import(&a, 1, &c, &c.regions[0]);
    uint8_t *src = random_bytes(bytes), *own = random_bytes(50);
    struct stepaf_xfer xfers[2][2] = {
        {{.src = src, .dst = to_b, .dst_offset = 64, .bytes = bytes},
         {.src = own, .dst = to_b, .dst_offset = 0, .bytes = 20}},
        {{.src = src, .dst = to_c, .dst_offset = 128, .bytes = bytes},
         {.src = own + 20, .dst = to_c, .dst_offset = 0, .bytes = 30}},
    };
    struct stepaf_post posts[2] = {{.link = a.links[0], .xfer = xfers[0], .n_xfer = 2},
                                   {.link = a.links[1], .xfer = xfers[1], .n_xfer = 2}};
    struct stepaf_post *list[] = {&posts[0], &posts[1]};

    for (int i = 0; i < 2; i++)
        posts[i].msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = bytes};
    while (second_is_full && side_say(&a, 1, 0) == STEPAF_POST_SENT) {
    }
    stepaf_shm_ops.post(list, 2);
    CU_ASSERT_EQUAL(posts[0].state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(posts[1].state, second_is_full ? STEPAF_POST_QUEUED : STEPAF_POST_SENT);
    side_progress(&c);
    if (second_is_full)
        stepaf_shm_ops.post(&list[1], 1);
    CU_ASSERT_EQUAL(posts[1].state, STEPAF_POST_SENT);
    side_progress(&b);
    side_progress(&c);
    CU_ASSERT_EQUAL(b.messages[b.n_messages - 1].seq, bytes);
    CU_ASSERT_EQUAL(c.messages[c.n_messages - 1].seq, bytes);
    CU_ASSERT_EQUAL(memcmp(b.regions[0].base + 64, src, bytes), 0);
    CU_ASSERT_EQUAL(memcmp(c.regions[0].base + 128, src, bytes), 0);
    CU_ASSERT_EQUAL(memcmp(b.regions[0].base, own, 20), 0);
    CU_ASSERT_EQUAL(memcmp(c.regions[0].base, own + 20, 30), 0);
    stepaf_shm_ops.release_mem(a.links[0], to_b);
    stepaf_shm_ops.release_mem(a.links[1], to_c);
    free(src);
    free(own);
}

static void several_peers_get_the_same_bytes(void)
{
    static const uint32_t sizes[] = {0, 100, 8191, 8192, 65536, 65537, 300000};

    side_cma = "off";
    side_open(&a, 2);
    side_open(&b, 1);
    side_open(&c, 1);
    for (uint32_t p = 0; p < 2; p++) {
        struct side *other = p ? &c : &b;
        CU_ASSERT_PTR_NULL(side_connect(&a, p, other, 0, (uint32_t)getpid(), NULL));
        CU_ASSERT_PTR_NULL(side_connect(other, 0, &a, p, (uint32_t)getpid(), NULL));
        (void)side_memory(other, 310000, true);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_to_both(sizes[i], false);
        write_to_both(sizes[i], true);
    }
    end();
    side_close(&c);
}

/* A fragment's place is input: what does not fit is dropped, and what follows is taken. */
static void bad_fragments_are_dropped(void)
{
    static const uint32_t bad[][4] = {
        {99, 0, 0, 1},          {100, 8192, 0, 1},           {100, 8191, 0, 2},
        {100, 0, 1, 1},         {100, 0, UINT32_MAX, 1},     {100, UINT32_MAX, UINT32_MAX, 1},
        {100, 0, 0, 4097},      {100, 0, 0, 8192},           {100, 0, 0, UINT32_MAX},
        {UINT32_MAX, 0, 0, 10}, {100, 8192, UINT32_MAX, 64},
    };
    size_t wrong = 0;

    begin("off");
    struct stepaf_mem *region = side_memory(&b, 8192, false);
    memset(region->base, 0x5a, region->bytes);
    struct stepaf_shm_link *link = (struct stepaf_shm_link *)a.links[0];
    for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct stepaf_msg msg = {.type = (uint8_t)(STEPAF_MSG_TRANSPORT + 12 * i), .n_words = 4};
        memcpy(msg.word, bad[i], sizeof bad[i]);
        stepaf_shm_slot_write(link, &msg);
        CU_ASSERT_EQUAL(side_say(&a, 0, i), STEPAF_POST_SENT);
        CU_ASSERT_EQUAL(side_progress(&b), 2);
        CU_ASSERT_EQUAL(b.up.dropped_malformed, i + 1);
        CU_ASSERT_EQUAL(b.n_messages, i + 1);
        link->tx_read = link->tx_next;
    }
    for (size_t k = 0; k < region->bytes; k++)
        wrong += region->base[k] != 0x5a;
    CU_ASSERT_EQUAL(wrong, 0);
    end();
}

static void a_dead_link_is_left_alone(void)
{
    begin("off");
    CU_ASSERT_EQUAL(side_say(&b, 0, 1), STEPAF_POST_SENT);
    a.links[0]->dead = true;
    for (uint32_t seq = 0; seq < 3 * SLOTS; seq++)
        CU_ASSERT_EQUAL(side_say(&a, 0, seq), STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(side_progress(&a), 0);
    CU_ASSERT_EQUAL(side_progress(&b), 0);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"messages arrive whole and in order", messages_arrive_whole_and_in_order},
        {"short messages are whole", short_messages_are_whole},
        {"a full ring takes no more", a_full_ring_takes_no_more},
        {"a slot read is a slot free, soon", a_slot_read_is_a_slot_free_soon},
        {"an impossible word of the reader is not believed",
         an_impossible_word_of_the_reader_is_not_believed},
        {"shared memory is written", shared_memory_is_written},
        {"pages are written through the ring", pages_are_written_through_the_ring},
        {"pages are written by the kernel", pages_are_written_by_the_kernel},
        {"pages that are gone lose the peer", pages_that_are_gone_lose_the_peer},
        {"sides with other numbers of peers agree on places",
         sides_with_other_numbers_of_peers_agree_on_places},
        {"several peers get the same bytes", several_peers_get_the_same_bytes},
        {"bad fragments are dropped", bad_fragments_are_dropped},
        {"a dead link is left alone", a_dead_link_is_left_alone},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
