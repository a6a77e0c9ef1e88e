/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations, as exchanged by a commit: the first byte says whose is edited, the rest are the
 * edits, or, if it is above 127, the blob itself. Malformed it is refused as a whole; else all that
 * is in it can be used, and every rank comes to the same outcome. */
#include "core/key.h"
#include "core/key_recv.h"
#include "edit.h"
#include "gpu/feature.h"
#include "world.h"

static struct stepaf_pack valid[RANKS];
static struct stepaf_advert declared[RANKS];

/* What the ranks really declare; made once, kept for ever. */
static void make_valid(void)
{
    static struct world world;
    static const int backwards[] = {1, 0};
    static uint8_t memory[4096];

    if (valid[0].data)
        return;
    world = world_open();
    struct fake_job *ffn = world.job[2];
    FUZZ_CHECK(stepaf_register(ffn->handle, memory, sizeof memory) == STEPAF_OK);
    FUZZ_CHECK(stepaf_key_set_recv(ffn->handle, PUSHED, memory, 600, backwards, 2) == STEPAF_OK);
    FUZZ_CHECK(stepaf_key_allocate(ffn->ctx) == STEPAF_OK);
    for (int r = 0; r < RANKS; r++) {
        stepaf_advert_pack(world.job[r]->ctx, STEPAF_OK, &valid[r]);
        world_read(&world, r, &valid[r], NULL, &declared[r]);
    }
}

static void use_regions(const struct stepaf_advert *it)
{
    struct stepaf_unpack regions = it->regions;

    for (uint32_t i = 0; i < it->n_regions; i++) {
        (void)stepaf_unpack_u32(&regions);
        (void)stepaf_unpack_u64(&regions);
        for (uint32_t t = 0; t < it->n_transports; t++)
            (void)stepaf_unpack_bytes(&regions, stepaf_unpack_u32(&regions));
        FUZZ_CHECK(!regions.failed);
    }
    (void)stepaf_unpack_bytes(&regions, stepaf_unpack_u64(&regions)); /* stream plans */
    FUZZ_CHECK(!regions.failed && regions.at == it->guests.at);       /* what is said of returns */
}

static void use(const struct stepaf_advert *it)
{
    struct stepaf_unpack unpack;
    uint32_t index, region;
    uint64_t offset;

    FUZZ_CHECK(it->n_transports <= STEPAF_MAX_TRANSPORTS && it->n_keys <= STEPAF_MAX_KEYS);
    FUZZ_CHECK(memchr(it->text, '\0', sizeof it->text));
    FUZZ_CHECK(stepaf_status_from((uint32_t)it->status) == it->status);
    if (it->status)
        return;
    if (stepaf_advert_transport(it, "fake", &unpack, &index))
        FUZZ_CHECK(index < it->n_transports && unpack.at <= unpack.end);
    for (uint32_t i = 0; i < it->n_keys; i++) {
        FUZZ_CHECK(!i || it->keys[i - 1].id < it->keys[i].id);
        FUZZ_CHECK(it->keys[i].ndim <= STEPAF_MAX_DIMS);
        FUZZ_CHECK(stepaf_advert_key(it, it->keys[i].id) == &it->keys[i]);
        for (uint32_t rank = 0; rank < 4; rank++)
            (void)stepaf_advert_slice(it, it->keys[i].id, rank - 1, &region, &offset);
    }
    use_regions(it);
}

static stepaf_status_t judge_with(const struct stepaf_advert *it, int at)
{
    struct stepaf_advert all[RANKS] = {declared[0], declared[1], declared[2]};

    all[at] = *it;
    stepaf_status_t outcome = stepaf_adverts_check(all, RANKS, 0, &stepaf_gpu_feature);
    FUZZ_CHECK(stepaf_status_from((uint32_t)outcome) == outcome);
    for (int r = 1; r < RANKS; r++)
        FUZZ_CHECK(stepaf_adverts_check(all, RANKS, r, &stepaf_gpu_feature) == outcome);
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stepaf_advert alone, shared;
    size_t blob_bytes;

    if (!bytes)
        return 0;
    make_valid();
    int at = data[0] % RANKS;
    uint8_t *blob = data[0] > 127 ? edit_copy(data + 1, bytes - 1, NULL, 0, &blob_bytes)
                                  : edit_copy(valid[at].data, valid[at].bytes, data + 1, bytes - 1,
                                              &blob_bytes);
    int role = at < 2 ? STEPAF_ATTENTION : STEPAF_FFN;
    /* Read beside one of its role, which it may equal, it is no other than read alone. */
    stepaf_status_t status = stepaf_advert_read(blob, blob_bytes, role, at, NULL, &alone);
    FUZZ_CHECK(status == STEPAF_OK || status == STEPAF_ERR_PROTOCOL);
    FUZZ_CHECK(stepaf_advert_read(blob, blob_bytes, role, at, &declared[at ? at - 1 : 1],
                                  &shared) == status);
    if (!status) {
        use(&alone);
        use(&shared);
        FUZZ_CHECK(judge_with(&alone, at) == judge_with(&shared, at));
        stepaf_advert_free(&alone);
        stepaf_advert_free(&shared);
    }
    free(blob);
    return 0;
}
