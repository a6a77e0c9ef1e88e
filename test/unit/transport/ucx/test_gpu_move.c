/* SPDX-License-Identifier: Apache-2.0 */
/* UCX and GPU memory, both made up: it is moved by UCX alone, in the GPU's context, whatever order that
 * is in; what becomes of peers that send it as nobody does, and of those that are lost meanwhile. */
#include <stdlib.h>

#include "device/cuda_fake.h"
#include "gpu_case.h"
#include "ucx_fabric.h"
#include "ucx_gpu.h"
#include "unit.h"

enum { BYTES = 5000, OPS = 2000, ROOM = 65536 };

static struct side a, b, c;
static struct side *const all[] = {&a, &b, &c};

/* Sends from GPU memory, and fetches, that are under way. */
static unsigned moved(const struct side *side)
{
    return ucx_of(side)->gpu.n_inside - ucx_of(side)->gpu.n_always;
}

/* ---- how it is moved ---- */

static struct stepaf_mem *gpu_memory(struct side *side, size_t bytes)
{
    struct stepaf_mem *mem = ucx_gpu_memory(side, gpu_case, bytes);

    side_must(!side_ops->reg_mem(side->transport, mem) && mem->registration[0], "GPU memory");
    return mem;
}

/* Three sides, of which the first two are joined with GPU memory. */
static void begin_three(void)
{
    gpu_case_begin("direct");
    fabric_open_three(all);
}

static void end_three(void)
{
    for (int s = 0; s < 3; s++)
        side_close(all[s]);
    gpu_case_end();
}

static void fill(const struct stepaf_mem *mem, size_t bytes, uint8_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        ucx_gpu_view(mem->base)[i] = (uint8_t)(i * 7 + seed);
}

static bool is_same(const struct stepaf_mem *one, const struct stepaf_mem *other, size_t bytes)
{
    return !memcmp(ucx_gpu_view(one->base), ucx_gpu_view(other->base), bytes);
}

/* Write from a side's memory to its peer's, which knows it as its first; the two are the same then. */
static bool can_write(struct side *from, const struct stepaf_mem *source, struct side *to,
                      const struct stepaf_mem *target, uint32_t bytes)
{
    struct stepaf_rmem *rmem = side_import(from, 0, to, target);
    struct stepaf_xfer xfer = {source->base, source, rmem, 0, bytes};
    struct stepaf_post post = {.link = from->links[0],
                               .xfer = &xfer,
                               .n_xfer = 1,
                               .msg = {.type = STEPAF_MSG_START, .seq = 5}},
                       *posts[] = {&post};
    unsigned n = to->n_messages;

    post.is_short = stepaf_msg_to_imm(&post.msg, &post.imm);
    fill(source, bytes, (uint8_t)bytes);
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_POSTED);
    bool came = fabric_until_messages(to, from, n + 1);
    for (int i = 0; i < 100000 && post.state == STEPAF_POST_POSTED; i++)
        (void)side_progress(from);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_SENT);
    side_ops->release_mem(from->links[0], rmem);
    return came && is_same(source, target, bytes);
}

static void what_is_written_from_it_and_to_it_arrives(void)
{
    static const uint32_t sizes[] = {1, 64, 512, 513, BYTES, ROOM};

    begin_three();
    ucx_gpu.helps = true;
    struct stepaf_mem *own = gpu_memory(&a, ROOM), *its = gpu_memory(&b, ROOM);
    struct stepaf_mem *host = fabric_memory(&a, ROOM), *its_host = fabric_memory(&b, ROOM);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CU_ASSERT_TRUE(can_write(&a, own, &b, its, sizes[i]));
        CU_ASSERT_TRUE(can_write(&a, host, &b, its, sizes[i]));
        CU_ASSERT_TRUE(can_write(&a, own, &b, its_host, sizes[i]));
        CU_ASSERT_TRUE(can_write(&b, its, &a, own, sizes[i]));
    }
    CU_ASSERT_EQUAL(ucx_gpu.n_sent, 18);
    CU_ASSERT_EQUAL(ucx_gpu.n_fetched, 18);
    CU_ASSERT(!moved(&a) && !moved(&b));
    fabric_check_link(&a, 1, &c);
    end_three();
}

/* The peer has one, this rank has none: nothing of it is needed. */
static void a_rank_without_a_gpu_writes_to_it(void)
{
    begin_three();
    struct stepaf_mem *host = fabric_memory(&a, ROOM), *its = gpu_memory(&b, ROOM);
    CU_ASSERT_TRUE(can_write(&a, host, &b, its, 8));
    CU_ASSERT_TRUE(can_write(&a, host, &b, its, BYTES));
    CU_ASSERT_TRUE(can_write(&b, its, &a, host, BYTES));
    CU_ASSERT_PTR_NULL(ucx_of(&a)->gpu.device);
    end_three();
}

/* Tensors of both kinds in a post, with more posts than there is room for. */
static struct stepaf_mem *some_memory(struct side *side, size_t bytes)
{
    return (side->n_regions + (side == &fabric_sides[0])) % 3 ? gpu_memory(side, bytes)
                                                              : fabric_memory(side, bytes);
}

static void nothing_depends_on_order(void)
{
    for (int i = 0; i < 3; i++) {
        gpu_case_begin("direct");
        ucx_fabric.at_once_in = i ? 3 : 0;
        fabric_order_memory = some_memory;
        fabric_order_view = ucx_gpu_view;
        fabric_order_begin();
        for (int s = 0; s < FABRIC_SIDES && i == 2; s++) /* few operations are free */
            ucx_of(&fabric_sides[s])->free_op = &ucx_of(&fabric_sides[s])->ops[2];
        fabric_order_exchange(fabric_order_ops(OPS));
        CU_ASSERT(ucx_gpu.n_sent > 10 && ucx_gpu.n_fetched > 10 && ucx_fabric.n_overtaken > 10);
        fabric_order_end(NULL);
        gpu_case_end();
    }
}

/* ---- what peers may send, and how they may be lost ---- */

/* A message as the first peer of a would send it, with two places. */
struct sent {
    struct stepaf_ucx_head head;
    struct stepaf_ucx_place places[2];
};

struct quick {
    struct stepaf_ucx_quick head;
    uint8_t data[8];
};

static void say_inline(int way)
{
    uint32_t id = a.regions[0].id, imm = stepaf_imm_make(STEPAF_IMM_START, 0, 5, 0);
    struct sent sent = {.head = {.token = fabric_of(&a)->token,
                                 .kind = STEPAF_FABRIC_MESSAGE,
                                 .is_short = 1,
                                 .n_places = 1,
                                 .imm = imm},
                        .places = {{0, id, 8}, {0, id, 8}}};
    struct quick quick = {.head = {.token = fabric_of(&a)->token >> 32,
                                   .whose = id << STEPAF_UCX_ID_SHIFT,
                                   .imm = imm}};

    if (way == 1)
        sent.head.kind = STEPAF_FABRIC_PIECE;
    if (way == 2) {
        sent.places[0].id = a.regions[1].id; /* host memory */
        sent.head.n_places = 2;
    }
    if (way == 5) { /* behind the head, to host memory, and told only */
        sent.places[0].id = a.regions[1].id;
        ucx_fabric_tell(&a, &sent, sizeof(sent.head) + sizeof(sent.places[0]) + 8);
    } else if (way == 3)
        ucx_fabric_say_quick(&a, &quick, sizeof(quick), 0);
    else if (way == 4) /* behind the head */
        ucx_fabric_say(&a, &sent, sizeof(sent.head) + sizeof(sent.places[0]) + 8, &sent, 0);
    else
        ucx_fabric_say(&a, &sent, sizeof(sent.head) + sent.head.n_places * sizeof(sent.places[0]),
                       "0123456789abcdef", way == 2 ? 16 : 8);
}

/* UCX never does that of what is to be fetched: so the peer has said so. */
static void bytes_in_a_message_for_it_lose_the_link(void)
{
    static uint8_t bounce[ROOM];

    for (int way = 0; way < 12; way++) {
        begin_three();
        (void)gpu_memory(&a, ROOM);
        (void)fabric_memory(&a, ROOM);
        a.bounce = way < 6 ? NULL : bounce; /* of another transport */
        say_inline(way % 6);
        (void)side_progress(&a);
        CU_ASSERT_EQUAL(a.n_messages, 0);
        CU_ASSERT_EQUAL(a.n_lost, 1);
        CU_ASSERT_EQUAL(a.up.dropped_malformed, 1);
        UNIT_STRING(a.lost_reason, "it has sent something that has no place here");
        CU_ASSERT(!bounce[0] && !ucx_gpu_view(a.regions[0].base)[0] && !a.regions[1].base[0]);
        fabric_check_link(&a, 1, &c);
        end_three();
    }
}

/* Who has not registered it takes what comes to its bounce buffer. */
static void what_is_staged_comes_as_host_memory_does(void)
{
    static uint8_t bounce[ROOM];

    gpu_case_begin("staged");
    fabric_open_three(all);
    struct stepaf_mem *mem = ucx_gpu_memory(&a, gpu_case, ROOM);
    CU_ASSERT_EQUAL(side_ops->reg_mem(a.transport, mem), STEPAF_OK);
    a.bounce = bounce;
    say_inline(0);
    (void)side_progress(&a);
    CU_ASSERT_EQUAL(a.n_messages, 1);
    CU_ASSERT_EQUAL(bounce[7], '7');
    fabric_link(&a, 0)->taken--; /* b has not sent it */
    end_three();
}

static void memory_of_no_known_kind_is_refused(void)
{
    struct stepaf_pack pack = {0};
    struct stepaf_rmem *rmem;

    begin_three();
    side_ops->pack_mem(b.transport, gpu_memory(&b, ROOM), &pack);
    pack.data[0] ^= 0x40;
    struct stepaf_unpack unpack = stepaf_unpack_from(pack.data, pack.bytes);
    CU_ASSERT_EQUAL(side_ops->import_mem(a.links[0], 7, ROOM, &unpack, &rmem), STEPAF_ERR_PROTOCOL);
    UNIT_CONTAINS(stepaf_last_error()->text, "ucx: its memory type 65 is unknown");
    free(pack.data);
    end_three();
}

/* A post of b's for memory of a's, which has begun to fetch it. */
static struct stepaf_xfer xfer;
static struct stepaf_post post;

static void begin_to_fetch(void)
{
    struct stepaf_post *posts[] = {&post};

    begin_three();
    ucx_fabric.at_once_in = 0;
    struct stepaf_mem *own = gpu_memory(&a, ROOM), *its = gpu_memory(&b, ROOM);
    fill(its, BYTES, 3);
    xfer = (struct stepaf_xfer){its->base, its, side_import(&b, 0, &a, own), 0, BYTES};
    post = (struct stepaf_post){
        .link = b.links[0], .xfer = &xfer, .n_xfer = 1, .msg = {.type = STEPAF_MSG_START}};
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
    CU_ASSERT_EQUAL(moved(&b), 1);
    while (!moved(&a))
        (void)side_progress(&a);
    CU_ASSERT_EQUAL(post.state, STEPAF_POST_POSTED);
}

static void end_fetch(void)
{
    side_ops->release_mem(b.links[0], (struct stepaf_rmem *)(uintptr_t)xfer.dst);
    end_three();
}

/* The same where a is closed already, and may have left something. */
static void end_others(void)
{
    side_ops->release_mem(b.links[0], (struct stepaf_rmem *)(uintptr_t)xfer.dst);
    side_close(&b);
    side_close(&c);
    ucx_fabric_forget();
    gpu_case_end();
}

static void a_peer_is_lost_while_it_is_fetched_from(void)
{
    begin_to_fetch();
    ucx_fabric.dead = 1u << ucx_fabric_number(&a); /* the endpoint ends at both sides */
    fabric_take_in(all, 2);
    CU_ASSERT_EQUAL(a.n_lost, 1);
    UNIT_STRING(a.lost_reason, "UCX: the connection was reset");
    CU_ASSERT_EQUAL(b.n_lost, 1);
    CU_ASSERT_EQUAL(a.n_messages, 0);
    side_ops->retire(&post);
    CU_ASSERT(!moved(&a) && !moved(&b));
    ucx_fabric.dead = 0;
    fabric_check_link(&a, 1, &c);
    end_fetch();
}

/* UCX holds the handle as long as it moves something: the memory does not end before. */
static void memory_ends_behind_what_moves_it(void)
{
    begin_to_fetch();
    CU_ASSERT_EQUAL(ucx_gpu.n_mapped, 2);
    side_ops->dereg_mem(a.transport, &a.regions[0]);
    CU_ASSERT_EQUAL(moved(&a), 0);
    CU_ASSERT_EQUAL(ucx_gpu.n_mapped, 1);
    CU_ASSERT_EQUAL(a.n_messages, 0); /* nothing is delivered there */
    CU_ASSERT_TRUE(fabric_until_messages(&a, &b, 1));
    CU_ASSERT_TRUE(is_same(&a.regions[0], &b.regions[0], BYTES));
    end_fetch();
}

static void memory_that_ucx_does_not_let_go_of_is_left_to_it(void)
{
    begin_to_fetch();
    ucx_fabric.mute = 1u << ucx_fabric_number(&b);
    side_ops->dereg_mem(a.transport, &a.regions[0]);
    CU_ASSERT_EQUAL(moved(&a), 1);
    CU_ASSERT_EQUAL(ucx_gpu.n_mapped, 2);
    ucx_fabric.mute = 0;
    CU_ASSERT_TRUE(fabric_until_messages(&a, &b, 1));
    end_fetch(); /* closing ends it */
}

/* The core has given the peer up, which lives: what is fetched from it is ended first. */
static void closing_ends_what_moves_for_a_lost_peer(void)
{
    begin_to_fetch();
    ucx_fabric.mute = 1u << ucx_fabric_number(&b);
    a.links[0]->dead = true;
    side_close(&a);
    CU_ASSERT_EQUAL(ucx_fabric.n_misused, 0);
    CU_ASSERT_EQUAL(ucx_gpu.n_mapped, 1);
    ucx_fabric.mute = 0;
    end_others();
}

static void memory_does_not_wait_for_a_lost_peer(void)
{
    begin_to_fetch();
    ucx_fabric.mute = 1u << ucx_fabric_number(&b);
    a.links[0]->dead = true;
    side_ops->dereg_mem(a.transport, &a.regions[0]);
    CU_ASSERT_EQUAL(moved(&a), 0);
    CU_ASSERT_EQUAL(ucx_gpu.n_mapped, 1);
    ucx_fabric.mute = 0;
    end_fetch();
}

/* UCX before 1.19 copies in the context of whoever calls, also what it begins within its progress. */
static void older_ucx_is_always_called_inside(void)
{
    for (unsigned minor = 18; minor <= 19; minor++) {
        gpu_case_begin("direct");
        ucx_fabric.minor = minor;
        fabric_open_three(all);
        struct stepaf_mem *own = gpu_memory(&a, ROOM), *its = gpu_memory(&b, ROOM);
        CU_ASSERT_TRUE(can_write(&a, own, &b, its, BYTES));
        CU_ASSERT(!moved(&a) && !moved(&b));
        int before = cuda_fake.n_calls;
        (void)side_progress(&a);
        CU_ASSERT_EQUAL(cuda_fake.n_calls > before, minor < 19);
        end_three();
    }
}

/* The context is gone: UCX is not called without it. */
static void without_its_context_links_are_lost(void)
{
    begin_to_fetch();
    cuda_fake.error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    cuda_fake.fail_at = cuda_fake.n_calls + 1;
    (void)side_progress(&a);
    CU_ASSERT_EQUAL(a.n_lost, 2);
    UNIT_STRING(a.lost_reason, "this rank's GPU no longer has a context");
    cuda_fake.fail_at = cuda_fake.n_calls + 1;
    struct stepaf_post more = post, *posts[] = {&more};
    CU_ASSERT_EQUAL(side_ops->post(posts, 1), 0);
    CU_ASSERT_EQUAL(more.state, STEPAF_POST_SENT);
    CU_ASSERT_EQUAL(b.n_lost, 1);
    cuda_fake.fail_at = 0;
    side_close(&a);
    CU_ASSERT_EQUAL(ucx_gpu.n_mapped, 2); /* UCX is left as it is */
    end_others();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is written from it, and to it, arrives", what_is_written_from_it_and_to_it_arrives},
        {"a rank without a GPU writes to it", a_rank_without_a_gpu_writes_to_it},
        {"nothing depends on order", nothing_depends_on_order},
        {"bytes in a message for it lose the link", bytes_in_a_message_for_it_lose_the_link},
        {"what is staged comes as host memory does", what_is_staged_comes_as_host_memory_does},
        {"memory of no known kind is refused", memory_of_no_known_kind_is_refused},
        {"a peer is lost while it is fetched from", a_peer_is_lost_while_it_is_fetched_from},
        {"memory ends behind what moves it", memory_ends_behind_what_moves_it},
        {"memory that UCX does not let go of is left to it",
         memory_that_ucx_does_not_let_go_of_is_left_to_it},
        {"closing ends what moves for a lost peer", closing_ends_what_moves_for_a_lost_peer},
        {"memory does not wait for a lost peer", memory_does_not_wait_for_a_lost_peer},
        {"older UCX is always called inside", older_ucx_is_always_called_inside},
        {"without its context links are lost", without_its_context_links_are_lost},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
