/* SPDX-License-Identifier: Apache-2.0 */
/* TCP without copies: an answer can come before the kernel has told that it is done with the post
 * that it answers. The core takes the post back then, and uses it for the next operation. */
#include <string.h>
#include <sys/mman.h>

#include "tcp_side.h"
#include "unit.h"

enum { POSTS = 3, BYTES = 4096, ALL = 1 << POSTS };

static struct side a, b;
static uint8_t *source;
static struct stepaf_xfer xfers[POSTS];
static struct stepaf_post posts[POSTS];

static void begin(void)
{
    tcp_set_defaults();
    tcp_set("STEPAF_TCP_ZEROCOPY", "on");
    tcp_set("STEPAF_TCP_ZEROCOPY_BYTES", "4096");
    tcp_open(&a, true, 1);
    tcp_open(&b, false, 1);
    tcp_join(&a, 0, &b, 0);
    source = tcp_map((size_t)POSTS * BYTES);
}

static void send_all(const struct stepaf_rmem *place)
{
    for (int i = 0; i < POSTS; i++) {
        struct stepaf_post *one = &posts[i];
        xfers[i] = (struct stepaf_xfer){.src = source + (size_t)i * BYTES,
                                        .dst = place,
                                        .dst_offset = (size_t)i * BYTES,
                                        .bytes = BYTES};
        posts[i] = (struct stepaf_post){.link = a.links[0], .xfer = &xfers[i], .n_xfer = 1};
        CU_ASSERT_EQUAL(side_ops->post(&one, 1), 0);
        CU_ASSERT_EQUAL(posts[i].state, STEPAF_POST_POSTED);
    }
}

static bool has_come(void *unused)
{
    (void)unused;
    return b.n_messages == POSTS;
}

static bool is_through(void *unused)
{
    (void)unused;
    return !tcp_link(&a, 0)->n_held;
}

/* The posts in the set @a back are taken back before the sender has heard of the kernel. */
static void take_back(unsigned back)
{
    struct side *both[] = {&a, &b};

    begin();
    const struct stepaf_mem *region = side_memory(&b, (size_t)POSTS * BYTES, false);
    struct stepaf_rmem *place = side_import(&a, 0, &b, region);
    send_all(place);
    CU_ASSERT(tcp_until(&both[1], 1, has_come, NULL));
    CU_ASSERT_EQUAL(tcp_link(&a, 0)->n_held, POSTS);
    CU_ASSERT(!memcmp(region->base, source, (size_t)POSTS * BYTES));
    for (int i = 0; i < POSTS; i++)
        if (back >> i & 1) {
            side_ops->retire(&posts[i]);
            posts[i].state = STEPAF_POST_QUEUED; /* of the next operation */
        }
    CU_ASSERT(tcp_until(both, 2, is_through, NULL));
    CU_ASSERT_EQUAL(tcp_of(&a)->count.held, 0);
    for (int i = 0; i < POSTS; i++)
        CU_ASSERT_EQUAL(posts[i].state, back >> i & 1 ? STEPAF_POST_QUEUED : STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(a.n_lost + b.n_lost, 0);
    side_ops->release_mem(a.links[0], place);
    side_close(&a);
    side_close(&b);
    (void)munmap(source, (size_t)POSTS * BYTES);
}

static void what_is_taken_back_is_left_alone(void)
{
    for (unsigned back = 0; back < ALL; back++)
        take_back(back);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is taken back is left alone", what_is_taken_back_is_left_alone},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
