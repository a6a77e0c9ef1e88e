/* SPDX-License-Identifier: Apache-2.0 */
/* The map: its text for jobs of all sizes, its parts written, read and damaged, and a transport
 * that lies about what it has carried. */
#include <stdlib.h>

#include "base/error.h"
#include "fake.h"
#include "map/map.h"
#include "unit.h"

enum { MIB = 1 << 20 };

static const struct stepaf_map_way by_shm = {"shm;cma", ""};
static const struct stepaf_map_way by_tcp = {"tcp;eth0", "shm: on another node"};

/* A job of @a n_attention and then @a n_ffn ranks, @a per_node of one role to a node: shared memory
 * within a node, TCP between. */
static struct stepaf_map made_up(uint32_t n_attention, uint32_t n_ffn, uint32_t per_node,
                                 uint32_t n_nodes, bool with_bytes)
{
    uint32_t size = n_attention + n_ffn;
    uint8_t *roles = calloc(size, 1);
    struct stepaf_map map;

    for (uint32_t r = n_attention; r < size; r++)
        roles[r] = STEPAF_FFN;
    CU_ASSERT_TRUE_FATAL(stepaf_map_open(&map, size, roles));
    free(roles);
    map.epoch = 1;
    map.with_bytes = with_bytes;
    for (uint32_t r = 0; r < size; r++) {
        struct stepaf_map_part *part = &map.parts[r];
        uint32_t node = part->rank / per_node % n_nodes;
        part->node_id = 100 + node;
        snprintf(part->host, sizeof part->host, "n%u", node);
        snprintf(part->cores, sizeof part->cores, "%u", part->rank % per_node);
        if (n_nodes > 1)
            snprintf(part->address, sizeof part->address, "10.0.0.%u", node);
        for (uint32_t p = 0; p < map.n_of[!part->role]; p++)
            CU_ASSERT_TRUE_FATAL(stepaf_map_part_add(
                part, p / per_node % n_nodes == node ? &by_shm : &by_tcp, with_bytes ? MIB : 0, 7));
    }
    return map;
}

static void expect_text(struct stepaf_map *map, const char *expected)
{
    char *text = stepaf_map_text(map);

    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    UNIT_STRING(text, expected);
    free(text);
    stepaf_map_close(map);
}

/* One rank alone has nobody to talk to: such a job is refused at init, but a table has one row. */
static void one_rank(void)
{
    struct stepaf_map map = made_up(1, 0, 1, 1, false);

    expect_text(&map, "stepaf map, epoch 1: 1 attention and 0 FFN ranks on 1 node\n"
                      "\n"
                      "ID  node  address  role  GPU  NIC  cores  ranks\n"
                      " 0  n0    -        attn  -    -    0      0\n");
}

static void four_ranks_on_two_nodes(void)
{
    struct stepaf_map map = made_up(2, 2, 1, 2, false);

    strcpy(map.parts[1].gpu, "0000:17:00.0");
    strcpy(map.parts[1].nic, "mlx5_0");
    expect_text(&map, "stepaf map, epoch 1: 2 attention and 2 FFN ranks on 2 nodes\n"
                      "\n"
                      "ID  node  address   role  GPU           NIC     cores  ranks\n"
                      " 0  n0    10.0.0.0  attn  -             -       0      0\n"
                      " 1  n1    10.0.0.1  attn  0000:17:00.0  mlx5_0  0      1\n"
                      " 2  n0    10.0.0.0  ffn   -             -       0      2\n"
                      " 3  n1    10.0.0.1  ffn   -             -       0      3\n"
                      "\n"
                      "              ID 2      ID 3\n"
                      "ID 0          shm;cma   tcp;eth0\n"
                      "ID 1          tcp;eth0  shm;cma\n"
                      "\n"
                      "tcp;eth0 on 2 links (attention 0 - FFN 1 first) instead of shm: on another "
                      "node\n");
}

static void four_ranks_with_traffic(void)
{
    struct stepaf_map map = made_up(2, 2, 1, 2, true);

    map.parts[0].runs[0].moved = 1000;
    expect_text(&map, "stepaf map, epoch 1: 2 attention and 2 FFN ranks on 2 nodes\n"
                      "\n"
                      "ID  node  address   role  GPU  NIC  cores  ranks\n"
                      " 0  n0    10.0.0.0  attn  -    -    0      0\n"
                      " 1  n1    10.0.0.1  attn  -    -    0      1\n"
                      " 2  n0    10.0.0.0  ffn   -    -    0      2\n"
                      " 3  n1    10.0.0.1  ffn   -    -    0      3\n"
                      "\n"
                      "pushed/pulled ID 2                ID 3\n"
                      "ID 0          shm;cma 1000/1.0M   tcp;eth0 1.0M/1.0M\n"
                      "ID 1          tcp;eth0 1.0M/1.0M  shm;cma 1.0M/1.0M\n"
                      "\n"
                      "shm;cma: 2 links, 1.0M bytes pushed, 2.0M pulled\n"
                      "tcp;eth0: 2 links, 2.0M bytes pushed, 2.0M pulled\n"
                      "\n"
                      "tcp;eth0 on 2 links (attention 0 - FFN 1 first) instead of shm: on another "
                      "node\n");
}

static void a_hundred_ranks_are_grouped_by_node(void)
{
    struct stepaf_map map = made_up(80, 20, 40, 2, false);

    expect_text(&map, "stepaf map, epoch 1: 80 attention and 20 FFN ranks on 2 nodes\n"
                      "\n"
                      "ID  node  address   role  GPU  NIC  cores  ranks\n"
                      " 0  n0    10.0.0.0  attn  -    -    0-39   0-39\n"
                      " 1  n1    10.0.0.1  attn  -    -    0-39   40-79\n"
                      " 2  n0    10.0.0.0  ffn   -    -    0-19   80-99\n"
                      "\n"
                      "              ID 2\n"
                      "ID 0          shm;cma\n"
                      "ID 1          tcp;eth0\n"
                      "\n"
                      "tcp;eth0 on 800 links (attention 40 - FFN 0 first) instead of shm: on "
                      "another node\n");
}

/* A hole is named, and so is who has come back; nothing of it counts as a node, or as a link. */
static struct stepaf_map with_fates(uint32_t n_attention, uint32_t n_ffn, uint32_t per_node)
{
    struct stepaf_map map = made_up(n_attention, n_ffn, per_node, 2, false);
    uint32_t out = n_attention + 1, back = 0;

    stepaf_map_part_free(&map.parts[out]);
    map.parts[out] =
        (struct stepaf_map_part){.role = STEPAF_FFN, .rank = 1, .fate = STEPAF_MAP_OUT};
    map.parts[back].fate = STEPAF_MAP_RETURNED;
    map.parts[back].n_returns = 2;
    return map;
}

static void holes_and_returns_are_named(void)
{
    struct stepaf_map map = with_fates(1, 2, 1);

    stepaf_map_part_free(&map.parts[0]);
    CU_ASSERT_TRUE_FATAL(stepaf_map_part_add(&map.parts[0], &by_shm, 0, 7));
    CU_ASSERT_TRUE_FATAL(stepaf_map_part_add(&map.parts[0], NULL, 0, 0));
    expect_text(&map, "stepaf map, epoch 1: 1 attention and 2 FFN ranks on 1 node\n"
                      "\n"
                      "ID  node  address   role  GPU  NIC  cores  ranks\n"
                      " 0  n0    10.0.0.0  attn  -    -    0      0\n"
                      " 1  n0    10.0.0.0  ffn   -    -    0      1\n"
                      " 2  -     -         ffn   -    -    -      2\n"
                      "\n"
                      "attention rank 0 (world rank 0) has returned, 2 times\n"
                      "FFN rank 1 (world rank 2) is out: it was lost\n"
                      "\n"
                      "              ID 1     ID 2\n"
                      "ID 0          shm;cma  -\n");
}

static void holes_are_not_grouped_with_others(void)
{
    struct stepaf_map map = with_fates(12, 8, 6);
    char *text = stepaf_map_text(&map);

    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    UNIT_CONTAINS(text, "12 attention and 8 FFN ranks on 2 nodes\n");
    UNIT_CONTAINS(text, " 3  -     -         ffn   -    -    -      13\n");
    UNIT_CONTAINS(text, "FFN rank 1 (world rank 13) is out: it was lost\n");
    free(text);
    for (uint32_t r = 0; r < map.size; r++)
        map.parts[r].fate = STEPAF_MAP_LEFT;
    text = stepaf_map_text(&map);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    UNIT_CONTAINS(text,
                  "FFN rank 3 (world rank 15) has left\nand 4 more are out or have returned\n");
    free(text);
    stepaf_map_close(&map);
}

/* 125 nodes with letters: a page, and every line of a width that people can read. */
static void a_thousand_ranks_stay_readable(void)
{
    struct stepaf_map map = made_up(600, 400, 8, 125, true);
    char *text = stepaf_map_text(&map);
    unsigned lines = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    UNIT_CONTAINS(text, "600 attention and 400 FFN ranks on 75 nodes\n");
    UNIT_CONTAINS(text, "\n  0  n0    10.0.0.0   attn  -    -    0-7    0-7\n");
    UNIT_CONTAINS(text, "\n124  n49   10.0.0.49  ffn   -    -    0-7    992-999\n");
    UNIT_CONTAINS(text, "\nA shm;cma, B tcp;eth0, * several, . none\n\n              ID 75-124\n"
                        "ID 0          ABBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB\n"
                        "ID 1          BABBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB\n");
    UNIT_CONTAINS(text, "\nID 50-74      BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB\n");
    UNIT_CONTAINS(text, "\nshm;cma: 3200 links, 3.1G bytes pushed, 3.1G pulled\n"
                        "tcp;eth0: 236800 links, 231.2G bytes pushed, 231.2G pulled\n");
    for (const char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        CU_ASSERT(end - at <= 100);
        lines++;
    }
    CU_ASSERT_EQUAL(lines, 2 + 1 + 125 + 1 + 1 + 1 + 1 + 51 + 1 + 2 + 1 + 1);
    free(text);
    stepaf_map_close(&map);
}

/* Several transports between two IDs, none at all, and no name twice. */
static void mixed_cells_say_so(void)
{
    struct stepaf_map map = made_up(16, 2, 16, 1, false);

    stepaf_map_part_free(&map.parts[3]);
    CU_ASSERT_TRUE(stepaf_map_part_add(&map.parts[3], &by_tcp, 0, 0));
    CU_ASSERT_TRUE(stepaf_map_part_add(&map.parts[3], NULL, 0, 0));
    strcpy(map.parts[5].host, "other");
    for (uint32_t r = 16; r < 18; r++) /* the longest name that there is */
        snprintf(map.parts[r].host, sizeof(map.parts[r].host), "%062u-z", 7U);
    char *text = stepaf_map_text(&map);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    UNIT_CONTAINS(text, "\n 0  n0,..  ");
    UNIT_CONTAINS(text, "  000000000000000000000000..0000000000000000000007-z");
    UNIT_CONTAINS(text, "\nID 0          several\n");
    UNIT_CONTAINS(text, "\ntcp;eth0 on 1 link (attention 3 - FFN 0 first) instead of shm:");
    free(text);
    stepaf_map_close(&map);
}

static struct stepaf_map_part sample(void)
{
    struct stepaf_map_part part = {.node_id = 77, .status = STEPAF_ERR_TRANSPORT};

    strcpy(part.text, "it lies");
    strcpy(part.host, "so\033[2Jmewhere");
    strcpy(part.cores, "0-3");
    CU_ASSERT_TRUE_FATAL(stepaf_map_part_add(&part, &by_shm, 1, 2));
    CU_ASSERT_TRUE_FATAL(stepaf_map_part_add(&part, &by_shm, 1, 2));
    CU_ASSERT_TRUE_FATAL(stepaf_map_part_add(&part, NULL, 0, 0));
    CU_ASSERT_TRUE_FATAL(stepaf_map_part_add(&part, &by_tcp, MIB, 3));
    CU_ASSERT_EQUAL(part.n_runs, 3);
    return part;
}

static void what_is_said_is_read(void)
{
    struct stepaf_map_part part = sample(), it = {.role = 1, .rank = 9};
    struct stepaf_pack pack = {0};
    char text[STEPAF_ERROR_TEXT_MAX];
    stepaf_status_t verdict;

    stepaf_map_part_pack(&part, &pack);
    CU_ASSERT_EQUAL_FATAL(stepaf_map_part_read(pack.data, pack.bytes, 4, &it), STEPAF_OK);
    CU_ASSERT(it.role == 1 && it.rank == 9 && it.node_id == 77 && it.n_runs == 3);
    UNIT_STRING(it.host, "so?[2Jmewhere");
    UNIT_STRING(it.ways[it.runs[2].way - 1].refused, "shm: on another node");
    CU_ASSERT(it.runs[0].n == 2 && it.runs[1].way == 0 && it.runs[2].moved == MIB);
    stepaf_map_part_free(&it);
    CU_ASSERT_EQUAL(stepaf_map_verdict_read(pack.data, pack.bytes, &verdict, text), STEPAF_OK);
    CU_ASSERT_EQUAL(verdict, STEPAF_ERR_TRANSPORT);
    UNIT_STRING(text, "it lies");
    /* for another number of links it makes no sense */
    CU_ASSERT_EQUAL(stepaf_map_part_read(pack.data, pack.bytes, 3, &it), STEPAF_ERR_PROTOCOL);
    CU_ASSERT_EQUAL(stepaf_map_part_read(pack.data, pack.bytes, 5, &it), STEPAF_ERR_PROTOCOL);
    stepaf_map_part_free(&part);
    free(pack.data);
}

/* Read what is @a bytes long from an allocation of that size, so that a sanitizer sees an overrun;
 * what is taken can be drawn. */
static bool take(const uint8_t *data, size_t bytes)
{
    struct stepaf_map map = made_up(1, 4, 1, 1, false);
    uint8_t *copy = malloc(bytes ? bytes : 1);
    char text[STEPAF_ERROR_TEXT_MAX];
    stepaf_status_t verdict;

    memcpy(copy, data, bytes);
    stepaf_map_part_free(&map.parts[0]);
    bool taken = stepaf_map_part_read(copy, bytes, 4, &map.parts[0]) == STEPAF_OK;
    if (stepaf_map_verdict_read(copy, bytes, &verdict, text) == STEPAF_OK)
        CU_ASSERT_EQUAL(stepaf_status_from((uint32_t)verdict), verdict);
    char *drawn = taken ? stepaf_map_text(&map) : NULL;
    CU_ASSERT(!taken == !drawn);
    for (const char *c = drawn; c && *c; c++)
        CU_ASSERT((*c >= ' ' && *c <= '~') || *c == '\n');
    free(drawn);
    free(copy);
    stepaf_map_close(&map);
    return taken;
}

static void damage_is_refused_or_harmless(void)
{
    struct stepaf_map_part part = sample();
    struct stepaf_pack pack = {0};
    unsigned refused = 0;
    uint32_t seed = 1;

    stepaf_map_part_pack(&part, &pack);
    stepaf_map_part_free(&part);
    CU_ASSERT_TRUE(take(pack.data, pack.bytes));
    for (size_t bytes = 0; bytes < pack.bytes; bytes++)
        CU_ASSERT_FALSE(take(pack.data, bytes));
    for (size_t bit = 0; bit < pack.bytes * 8; bit++) {
        pack.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        refused += !take(pack.data, pack.bytes);
        pack.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    CU_ASSERT(refused >= 64 && refused < pack.bytes * 8);
    for (int i = 0; i < 20000; i++) { /* words of noise */
        size_t at = (seed = seed * 1664525u + 1013904223u) % (pack.bytes - 4);
        uint32_t kept, noise = (seed >> 7) % 3 ? seed >> 24 : ~(seed >> 24);
        memcpy(&kept, pack.data + at, 4);
        memcpy(pack.data + at, &noise, 4);
        (void)take(pack.data, pack.bytes);
        memcpy(pack.data + at, &kept, 4);
    }
    free(pack.data);
}

/* A transport that says SENT and writes nothing is found out, by name; one that waits for room or
 * has lost its peer is not accused. */
static void a_lie_is_caught(void)
{
    enum { PUSHED = 1, BYTES = 100, PEERS = 2 };
    struct fake_job *attention = fake_open(STEPAF_ATTENTION, 1, PEERS);
    struct fake_job *ffn = fake_open(STEPAF_FFN, 1, PEERS);
    stepaf_link_info_t info = {.size = sizeof(info)};
    struct stepaf_map_part part;
    stepaf_request_h request;
    stepaf_plan_h plan;
    void *memory;

    fake_key(attention, ffn, PUSHED, STEPAF_PUSH, BYTES, 2);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(attention->handle, BYTES, STEPAF_MEM_HOST, &memory), 0);
    stepaf_tensor_t push = {PUSHED, memory, BYTES};
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_create(attention->handle, &push, 1, NULL, 0, 0, &plan), 0);
    CU_ASSERT_EQUAL_FATAL(fake_commit(attention, ffn), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_start(plan, &request), STEPAF_OK);
    stepaf_map_part_make(attention->ctx, true, &part);
    CU_ASSERT_EQUAL(part.status, STEPAF_OK);
    CU_ASSERT_EQUAL(part.runs[0].moved, BYTES);
    stepaf_map_part_free(&part);

    fake_link(attention, 1)->room = 0;
    CU_ASSERT_EQUAL_FATAL(stepaf_start(plan, &request), STEPAF_OK);
    stepaf_map_part_make(attention->ctx, true, &part);
    CU_ASSERT_EQUAL(part.status, STEPAF_OK); /* it waits for room */
    stepaf_map_part_free(&part);

    fake_link(attention, 1)->loses = true;
    fake_link(attention, 1)->room = FAKE_ENDLESS;
    CU_ASSERT_EQUAL(stepaf_progress(attention->handle), STEPAF_OK);
    stepaf_map_part_make(attention->ctx, true, &part);
    CU_ASSERT_EQUAL(part.status, STEPAF_ERR_TRANSPORT);
    UNIT_STRING(part.text, "attention rank 0 to FFN rank 1 (world rank 2): fake has written 100 of "
                           "200 bytes");
    stepaf_map_part_free(&part);
    CU_ASSERT_EQUAL(stepaf_link_query(attention->handle, 1, &info), STEPAF_OK);
    CU_ASSERT(info.bytes_sent == BYTES && info.world_rank == 2 && !info.is_lost);
    UNIT_STRING(info.transport, "fake");
    CU_ASSERT_EQUAL(stepaf_link_query(attention->handle, PEERS, &info), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_link_query(attention->handle, -1, &info), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_link_query(attention->handle, 0, NULL), STEPAF_ERR_INVALID);

    fake_link(attention, 1)->breaks = true;
    struct stepaf_msg bye = {.type = STEPAF_MSG_BYE};
    fake_tell(attention, 1, &bye);
    stepaf_map_part_make(attention->ctx, true, &part);
    CU_ASSERT_EQUAL(part.status, STEPAF_OK); /* nobody knows */
    stepaf_map_part_free(&part);
    fake_close(attention);
    fake_close(ffn);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"one rank", one_rank},
        {"four ranks on two nodes", four_ranks_on_two_nodes},
        {"four ranks with traffic", four_ranks_with_traffic},
        {"a hundred ranks are grouped by node", a_hundred_ranks_are_grouped_by_node},
        {"a thousand ranks stay readable", a_thousand_ranks_stay_readable},
        {"holes and returns are named", holes_and_returns_are_named},
        {"holes are not grouped with others", holes_are_not_grouped_with_others},
        {"mixed cells say so", mixed_cells_say_so},
        {"what is said is read", what_is_said_is_read},
        {"damage is refused or harmless", damage_is_refused_or_harmless},
        {"a lie is caught", a_lie_is_caught},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
