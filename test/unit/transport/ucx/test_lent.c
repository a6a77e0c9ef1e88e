/* SPDX-License-Identifier: Apache-2.0 */
/* UCX: memory of the caller's that is not there any more, where tensors lie or are to lie. What is
 * copied here ends no process: a receiver loses the peer, and what a sender cannot read goes to
 * nobody. */
#include <sys/mman.h>

#include "base/writable.h"
#include "ucx_fabric.h"
#include "unit.h"

enum { ROOM = 65536, SEQ = 5 };

static struct side a, b;
static struct stepaf_mem *source, *target, *lent;
static unsigned n_refused;
static const struct stepaf_post *refused_post;

static void refused(struct stepaf_upcalls *up, struct stepaf_post *post)
{
    (void)up;
    n_refused++;
    refused_post = post;
}

/* Memory of the caller's. */
static struct stepaf_mem *lend(struct side *side)
{
    struct stepaf_mem *mem = &side->regions[side->n_regions];
    void *base = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    side_must(base != MAP_FAILED, "memory");
    *mem = (struct stepaf_mem){
        .id = 100 + side->n_regions++, .bytes = ROOM, .base = base, .fd = -1, .lent = true};
    side_must(!side_ops->reg_mem(side->transport, mem), "registration");
    return mem;
}

static void begin(void)
{
    ucx_fabric_reset(5);
    ucx_fabric.told_in = 0;
    fabric_open(&a, 1);
    fabric_open(&b, 1);
    a.up.refused = refused;
    fabric_join(&a, 0, &b, 0);
    fabric_prove((struct side *[]){&a, &b}, 2);
    source = fabric_memory(&a, ROOM);
    target = fabric_memory(&b, ROOM);
    memset(source->base, 0x77, ROOM);
    n_refused = 0;
}

static void end(void)
{
    side_must(!munmap(lent->base, ROOM), "unmapping");
    lent->base = NULL;
    side_close(&a);
    side_close(&b);
    CU_ASSERT_EQUAL(ucx_fabric.n_open, 0);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
}

/* A tensor of so many bytes; or of 8, and another one of them. */
struct shape {
    uint32_t bytes;
    bool has_first;
};

static const struct shape shapes[] = {{8, false},  {64, false},   {STEPAF_UCX_STAGE, false},
                                      {100, true}, {5000, false}, {5000, true}};
enum { SHAPES = sizeof(shapes) / sizeof(*shapes), COPIED = 4 /* of them, by the sender */ };

/* The last is from, or to, the caller's memory. */
static struct stepaf_post *compose(const struct shape *shape, struct stepaf_rmem *first,
                                   const struct stepaf_mem *from, struct stepaf_rmem *to)
{
    static struct stepaf_xfer xfers[2];
    static struct stepaf_post post;
    unsigned n = 0;

    if (shape->has_first)
        xfers[n++] = (struct stepaf_xfer){source->base, source, first, 0, 8};
    xfers[n++] = (struct stepaf_xfer){from->base, from, to, 4096 - 8, shape->bytes};
    post = (struct stepaf_post){.link = a.links[0], .xfer = xfers, .n_xfer = (uint8_t)n};
    post.msg = (struct stepaf_msg){.type = STEPAF_MSG_START, .seq = SEQ};
    post.is_short = stepaf_msg_to_imm(&post.msg, &post.imm);
    return &post;
}

static void go_on(void)
{
    fabric_take_in((struct side *[]){&a, &b}, 2);
}

static void who_cannot_write_loses_the_peer(void)
{
    for (unsigned i = 0; i < 3 * SHAPES; i++) {
        begin();
        lent = lend(&b);
        struct stepaf_rmem *first = side_import(&a, 0, &b, target);
        struct stepaf_rmem *there = side_import(&a, 0, &b, lent);
        struct stepaf_post *post = compose(&shapes[i % SHAPES], first, source, there);
        int access = i < SHAPES ? PROT_READ | PROT_WRITE : i < 2 * SHAPES ? PROT_NONE : PROT_READ;
        side_must(!mprotect(lent->base, ROOM, access), "protection");
        CU_ASSERT_EQUAL(side_ops->post(&post, 1), 0);
        go_on();
        if (access & PROT_WRITE) { /* it is there */
            CU_ASSERT(b.n_messages == 1 && !b.n_lost);
            CU_ASSERT_EQUAL(memcmp(lent->base + 4096 - 8, source->base, post->xfer[0].bytes), 0);
        } else {
            CU_ASSERT(!b.n_messages && b.n_lost == 1);
            UNIT_STRING(b.lost_reason, stepaf_unwritable_own);
        }
        CU_ASSERT_EQUAL(n_refused, 0);
        side_ops->retire(post);
        side_ops->release_mem(a.links[0], first);
        side_ops->release_mem(a.links[0], there);
        end();
    }
}

static void what_cannot_be_read_goes_to_nobody(void)
{
    for (unsigned i = 0; i < COPIED; i++) {
        begin();
        lent = lend(&a);
        struct stepaf_rmem *first = side_import(&a, 0, &b, target);
        struct stepaf_post *post = compose(&shapes[i], first, lent, first);
        CU_ASSERT_EQUAL(side_ops->post(&post, 1), 0);
        go_on();
        CU_ASSERT_EQUAL(b.n_messages, 1);
        uint32_t sent = fabric_link(&a, 0)->sent;
        uint64_t bytes = a.links[0]->bytes_sent;
        side_must(!mprotect(lent->base, ROOM, PROT_NONE), "protection");
        unsigned n = ucx_fabric.n_messages;
        CU_ASSERT_EQUAL(side_ops->post(&post, 1), 0);
        CU_ASSERT_EQUAL(post->state, STEPAF_POST_SENT);
        CU_ASSERT(n_refused == 1 && refused_post == post);
        CU_ASSERT_EQUAL(ucx_fabric.n_messages, n);
        CU_ASSERT_PTR_NULL(fabric_link(&a, 0)->open);
        CU_ASSERT(fabric_link(&a, 0)->sent == sent && a.links[0]->bytes_sent == bytes);
        go_on();
        CU_ASSERT_EQUAL(b.n_messages, 1);
        fabric_check_link(&a, 0, &b);
        CU_ASSERT(!a.n_lost && !b.n_lost);
        side_ops->release_mem(a.links[0], first);
        end();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"who cannot write loses the peer", who_cannot_write_loses_the_peer},
        {"what cannot be read goes to nobody", what_cannot_be_read_goes_to_nobody},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
