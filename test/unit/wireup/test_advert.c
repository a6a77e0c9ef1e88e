/* SPDX-License-Identifier: Apache-2.0 */
/* The commit's blobs: written and read, and damaged in every way. */
#include <stdlib.h>

#include "core/key.h"
#include "core/key_recv.h"
#include "core/region.h"
#include "gpu/feature.h"
#include "unit.h"
#include "world.h"

static uint8_t memory[4096];

/* A blob with everything in it: segments of both kinds, regions, shapes. */
static struct stepaf_pack rich(struct world *world)
{
    static const int backwards[] = {1, 0};
    struct fake_job *ffn = world->job[2];
    struct stepaf_pack pack = {0};

    CU_ASSERT_EQUAL_FATAL(stepaf_register(ffn->handle, memory, sizeof memory), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_key_set_recv(ffn->handle, PUSHED, memory + 64, 600, backwards, 2),
                          STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_key_allocate(ffn->ctx), STEPAF_OK);
    stepaf_advert_pack(ffn->ctx, STEPAF_OK, &pack);
    CU_ASSERT_FALSE_FATAL(pack.failed);
    return pack;
}

static void what_is_declared_is_read(void)
{
    struct world world = world_open();
    struct stepaf_pack pack = rich(&world);
    struct stepaf_advert it;
    struct stepaf_unpack unpack;
    uint32_t index, region;
    uint64_t offset;
    char word[8];

    world_read(&world, 2, &pack, NULL, &it);
    CU_ASSERT(it.role == STEPAF_FFN && it.world_rank == 2 && it.status == STEPAF_OK);
    CU_ASSERT(it.epoch == 0 && it.changed && it.n_transports == 1 && it.n_keys == 3);
    CU_ASSERT_EQUAL(it.n_regions, 2);
    CU_ASSERT(it.keys[0].id == PUSHED && it.keys[0].direction == STEPAF_PUSH);
    CU_ASSERT(it.keys[1].id == PULLED && it.keys[1].direction == STEPAF_PULL);
    const struct stepaf_advert_key_row *key = &it.keys[2];
    CU_ASSERT(key->id == SHAPED && key->dtype == STEPAF_BF16 && key->depth == 2 && key->ndim == 3);
    CU_ASSERT(key->max_bytes == 48 && key->shape[0] == 4 && key->shape[1] == 3 &&
              key->shape[2] == 2);
    CU_ASSERT_TRUE(stepaf_advert_transport(&it, "fake", &unpack, &index));
    stepaf_unpack_text(&unpack, word, sizeof word);
    UNIT_STRING(word, "here");
    CU_ASSERT(index == 0 && unpack.at == unpack.end);
    CU_ASSERT_FALSE(stepaf_advert_transport(&it, "fak", &unpack, &index));
    CU_ASSERT_FALSE(stepaf_advert_transport(&it, "fake2", &unpack, &index));
    CU_ASSERT_FALSE(stepaf_advert_transport(&it, "", &unpack, &index));

    struct stepaf_region *own = stepaf_region_find(world.job[2]->ctx, memory, 1);
    CU_ASSERT_TRUE(stepaf_advert_slice(&it, PUSHED, 1, &region, &offset));
    CU_ASSERT(region == own->mem.id && offset == 64);
    CU_ASSERT_TRUE(stepaf_advert_slice(&it, PUSHED, 0, &region, &offset));
    CU_ASSERT(region == own->mem.id && offset == 64 + 300);
    CU_ASSERT_TRUE(stepaf_advert_slice(&it, SHAPED, 1, &region, &offset));
    CU_ASSERT_NOT_EQUAL(region, own->mem.id);
    CU_ASSERT_FALSE(stepaf_advert_slice(&it, PUSHED, 2, &region, &offset));
    CU_ASSERT_FALSE(stepaf_advert_slice(&it, PULLED, 0, &region, &offset));
    CU_ASSERT_FALSE(stepaf_advert_slice(&it, 99, 0, &region, &offset));
    stepaf_advert_free(&it);
    free(pack.data);
    world_close(&world);
}

/* Every rank of a segment is found, and no other one, whether they are told as a run or a list. */
static void runs_and_lists_are_found(void)
{
    static const int list[] = {7, 1, 4}, run[] = {3, 4, 5, 6};
    struct fake_job *ffn = fake_open(STEPAF_FFN, 8, 1),
                    *counterpart = fake_open(STEPAF_ATTENTION, 8, 1);
    struct stepaf_advert it;
    struct stepaf_pack pack = {0};
    uint32_t region;
    uint64_t offset;

    fake_key(ffn, counterpart, 1, STEPAF_PUSH, 8, 1);
    fake_key(ffn, counterpart, 2, STEPAF_PUSH, 8, 1);
    CU_ASSERT_EQUAL_FATAL(stepaf_register(ffn->handle, memory, sizeof memory), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_key_set_recv(ffn->handle, 1, memory + 100, 24, list, 3), 0);
    CU_ASSERT_EQUAL_FATAL(stepaf_key_set_recv(ffn->handle, 2, memory + 200, 32, run, 4), 0);
    stepaf_advert_pack(ffn->ctx, STEPAF_OK, &pack);
    CU_ASSERT_EQUAL_FATAL(stepaf_advert_read(pack.data, pack.bytes, STEPAF_FFN, 8, NULL, &it), 0);
    for (uint32_t rank = 0; rank < 12; rank++) {
        bool in_list = false;
        for (uint32_t i = 0; i < 3; i++)
            if ((uint32_t)list[i] == rank) {
                in_list = true;
                CU_ASSERT_TRUE(stepaf_advert_slice(&it, 1, rank, &region, &offset));
                CU_ASSERT_EQUAL(offset, 100 + 8 * i);
            }
        CU_ASSERT_EQUAL(stepaf_advert_slice(&it, 1, rank, &region, &offset), in_list);
        CU_ASSERT_EQUAL(stepaf_advert_slice(&it, 2, rank, &region, &offset),
                        rank >= 3 && rank <= 6);
        CU_ASSERT(rank < 3 || rank > 6 || offset == 200 + 8 * (rank - 3));
    }
    CU_ASSERT_FALSE(stepaf_advert_slice(&it, 2, UINT32_MAX, &region, &offset));
    stepaf_advert_free(&it);
    free(pack.data);
    fake_close(ffn);
    fake_close(counterpart);
}

/* Read bytes in memory of exactly their size. */
static stepaf_status_t read_copy(const uint8_t *data, size_t bytes, struct stepaf_advert *advert_p,
                                 uint8_t **copy_p)
{
    *copy_p = malloc(bytes ? bytes : 1);
    memcpy(*copy_p, data, bytes);
    return stepaf_advert_read(*copy_p, bytes, STEPAF_FFN, 2, NULL, advert_p);
}

static void every_truncation_is_refused(void)
{
    struct world world = world_open();
    struct stepaf_pack pack = rich(&world);
    struct stepaf_advert it;
    uint8_t *copy;

    for (size_t bytes = 0; bytes < pack.bytes; bytes++) {
        CU_ASSERT_EQUAL(read_copy(pack.data, bytes, &it, &copy), STEPAF_ERR_PROTOCOL);
        free(copy);
    }
    stepaf_pack_bytes(&pack, "", 1);
    CU_ASSERT_EQUAL(read_copy(pack.data, pack.bytes, &it, &copy), STEPAF_ERR_PROTOCOL);
    free(copy);
    free(pack.data);
    world_close(&world);
}

/* Use all of a advert that was taken. */
static void use(const struct stepaf_advert *it, const struct stepaf_advert *others)
{
    struct stepaf_advert all[RANKS] = {others[0], others[1], *it};
    struct stepaf_unpack unpack;
    uint32_t index, region;
    uint64_t offset;

    CU_ASSERT(it->n_transports <= STEPAF_MAX_TRANSPORTS && it->n_keys <= STEPAF_MAX_KEYS);
    CU_ASSERT_EQUAL(stepaf_status_from((uint32_t)it->status), it->status);
    (void)stepaf_advert_transport(it, "fake", &unpack, &index);
    for (uint32_t i = 0; i < it->n_keys; i++) {
        CU_ASSERT(!i || it->keys[i - 1].id < it->keys[i].id);
        CU_ASSERT(it->keys[i].ndim <= STEPAF_MAX_DIMS);
        for (uint32_t rank = 0; rank < 3; rank++)
            (void)stepaf_advert_slice(it, it->keys[i].id, rank, &region, &offset);
        (void)stepaf_advert_slice(it, it->keys[i].id, UINT32_MAX, &region, &offset);
    }
    stepaf_status_t outcome = stepaf_adverts_check(all, RANKS, 0, &stepaf_gpu_feature);
    for (int r = 1; r < RANKS; r++)
        CU_ASSERT_EQUAL(stepaf_adverts_check(all, RANKS, r, &stepaf_gpu_feature), outcome);
    CU_ASSERT(outcome <= STEPAF_OK);
}

/* Each bit turned: refused, or taken for something that can be used without harm. */
static void every_turned_bit_is_refused_or_harmless(void)
{
    struct world world = world_open();
    struct stepaf_pack pack = rich(&world), packs[2] = {{0}};
    struct stepaf_advert it, others[2];
    size_t refused = 0;
    uint8_t *copy;

    for (int r = 0; r < 2; r++) {
        stepaf_advert_pack(world.job[r]->ctx, STEPAF_OK, &packs[r]);
        world_read(&world, r, &packs[r], r ? &others[0] : NULL, &others[r]);
    }
    for (size_t bit = 0; bit < pack.bytes * 8; bit++) {
        pack.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (read_copy(pack.data, pack.bytes, &it, &copy)) {
            refused++;
        } else {
            use(&it, others);
            stepaf_advert_free(&it);
        }
        free(copy);
        pack.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    CU_ASSERT(refused > 32 && refused < pack.bytes * 8);
    for (int r = 0; r < 2; r++) {
        stepaf_advert_free(&others[r]);
        free(packs[r].data);
    }
    free(pack.data);
    world_close(&world);
}

/* A run of four thousand million ranks is a few bytes; nothing may go through them one by one. */
static void a_run_of_any_length_is_quick(void)
{
    struct stepaf_pack pack = {0};
    struct stepaf_advert it;
    uint32_t region;
    uint64_t offset;

    for (uint32_t i = 0; i < 64; i++) {
        stepaf_pack_u32(&pack, 0);          /* region */
        stepaf_pack_u64(&pack, i);          /* offset */
        stepaf_pack_u64(&pack, 0);          /* stride */
        stepaf_pack_u32(&pack, UINT32_MAX); /* ranks */
        stepaf_pack_u32(&pack, 1);
        stepaf_pack_u32(&pack, 5); /* the first: all but 4 */
    }
    struct stepaf_advert_key_row key = {
        .id = 1, .n_recv_bufs = 64, .recv_bufs = stepaf_unpack_from(pack.data, pack.bytes)};
    it = (struct stepaf_advert){.n_keys = 1, .keys = &key};
    CU_ASSERT_FALSE(stepaf_advert_slice(&it, 1, 4, &region, &offset));
    CU_ASSERT_TRUE(stepaf_advert_slice(&it, 1, 3, &region, &offset));
    CU_ASSERT_EQUAL(offset, 0);
    free(pack.data);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is declared is read", what_is_declared_is_read},
        {"runs and lists are found", runs_and_lists_are_found},
        {"every truncation is refused", every_truncation_is_refused},
        {"every turned bit is refused or harmless", every_turned_bit_is_refused_or_harmless},
        {"a run of any length is quick", a_run_of_any_length_is_quick},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
