/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: what may be declared, where it is received, how a tensor shows. */
#include <stdlib.h>

#include "core/key.h"
#include "core/key_recv.h"
#include "core/region.h"
#include "fake.h"
#include "unit.h"

enum { T = STEPAF_KEY_DTYPE, S = STEPAF_KEY_SHAPE, N = STEPAF_KEY_DEPTH, K = STEPAF_KEY_MEM_KIND };

/* A advert. */
struct advert {
    stepaf_direction_t direction;
    size_t max_bytes;
    stepaf_key_params_t params;
};

static const struct advert good[] = {
    {STEPAF_PUSH, 0, {0}},
    {STEPAF_PULL, UINT32_MAX, {0}},
    {STEPAF_PUSH, 8, {T, .dtype = STEPAF_F64}},
    {STEPAF_PUSH, 0, {S, .ndim = 1, .shape = {0}}},
    {STEPAF_PUSH, 0, {S | T, .ndim = 3, .shape = {5, 3, 2}, .dtype = STEPAF_BF16}},
    {STEPAF_PUSH, 128, {S | T, .ndim = 2, .shape = {4, 8}, .dtype = STEPAF_F32}},
    {STEPAF_PUSH, 0, {S, .ndim = 8, .shape = {2, 2, 2, 2, 2, 2, 2, 2}}},
    {STEPAF_PUSH, 0, {S, .ndim = 2, .shape = {0, UINT32_MAX}}},
    {STEPAF_PUSH, 0, {S, .ndim = 3, .shape = {0, UINT32_MAX, UINT32_MAX}}}, /* no row fits */
    {STEPAF_PUSH, 0, {S, .ndim = 1, .shape = {UINT32_MAX}}},
    {STEPAF_PUSH, 1, {N, .depth = 32}},
    {STEPAF_PUSH, 1, {K, .mem_kind = STEPAF_MEM_HOST}},
    {STEPAF_PUSH, 1, {K, .mem_kind = STEPAF_MEM_CUDA}},
};

static const struct advert bad[] = {
    {STEPAF_PUSH, 1, {.field_mask = STEPAF_KEY_ALL + 1}},
    {STEPAF_PUSH, 1, {.field_mask = (uint64_t)1 << 63}},
    {(stepaf_direction_t)2, 1, {0}},
    {(stepaf_direction_t)-1, 1, {0}},
    {STEPAF_PUSH, (size_t)UINT32_MAX + 1, {0}},
    {STEPAF_PUSH, SIZE_MAX, {0}},
    {STEPAF_PUSH, 7, {T, .dtype = STEPAF_F64}},
    {STEPAF_PUSH, 8, {T, .dtype = STEPAF_DTYPE_LAST}},
    {STEPAF_PUSH, 8, {T, .dtype = (stepaf_dtype_t)-1}},
    {STEPAF_PUSH, 0, {S, .ndim = 0}},
    {STEPAF_PUSH, 0, {S, .ndim = -1}},
    {STEPAF_PUSH, 0, {S, .ndim = STEPAF_MAX_DIMS + 1}},
    {STEPAF_PUSH, 0, {S, .ndim = 2, .shape = {3, -1}}},
    {STEPAF_PUSH, 0, {S, .ndim = 2, .shape = {INT64_MIN, 1}}},
    {STEPAF_PUSH, 0, {S, .ndim = 1, .shape = {(int64_t)UINT32_MAX + 1}}},
    {STEPAF_PUSH, 0, {S, .ndim = 2, .shape = {65536, 65536}}},
    {STEPAF_PUSH, 0, {S, .ndim = 3, .shape = {1, UINT32_MAX, UINT32_MAX}}},
    {STEPAF_PUSH, 0, {S, .ndim = 5, .shape = {0, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}}},
    {STEPAF_PUSH, 0, {S | T, .ndim = 1, .shape = {1u << 30}, .dtype = STEPAF_F32}},
    {STEPAF_PUSH, 31, {S, .ndim = 2, .shape = {4, 8}}},
    {STEPAF_PUSH, 1, {N, .depth = 0}},
    {STEPAF_PUSH, 1, {N, .depth = STEPAF_MAX_DEPTH + 1}},
    {STEPAF_PUSH, 1, {N, .depth = UINT32_MAX}},
    {STEPAF_PUSH, 1, {K, .mem_kind = (stepaf_mem_kind_t)-1}},
};

static stepaf_status_t declare(struct fake_job *job, uint64_t key, const struct advert *with)
{
    return stepaf_key_declare(job->handle, key, with->direction, with->max_bytes, &with->params);
}

static void good_ones_are_declared(void)
{
    struct fake_job *job = fake_open(STEPAF_FFN, 1, 1);

    for (uint32_t i = 0; i < sizeof good / sizeof *good; i++) {
        CU_ASSERT_EQUAL(declare(job, i, &good[i]), STEPAF_OK);
        CU_ASSERT_EQUAL(job->ctx->memory.n_keys, i + 1);
        CU_ASSERT_TRUE(job->ctx->commit.changed);
        job->ctx->commit.changed = false;
        CU_ASSERT_EQUAL(declare(job, i, &good[i]), STEPAF_OK); /* again */
        CU_ASSERT_EQUAL(job->ctx->memory.n_keys, i + 1);
        CU_ASSERT_FALSE(job->ctx->commit.changed);
    }
    fake_close(job);
}

static void bad_ones_are_refused(void)
{
    struct fake_job *job = fake_open(STEPAF_FFN, 1, 1);

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CU_ASSERT_EQUAL(declare(job, 4711, &bad[i]), STEPAF_ERR_INVALID);
        UNIT_CONTAINS(stepaf_last_error()->text, "key 4711");
    }
    CU_ASSERT_EQUAL(job->ctx->memory.n_keys, 0);
    CU_ASSERT_FALSE(job->ctx->commit.changed);
    fake_close(job);
}

/* What one key is declared as, every other one is not. */
static void another_declaration_is_refused(void)
{
    struct fake_job *job = fake_open(STEPAF_FFN, 1, 1);
    const struct advert first = {
        STEPAF_PUSH, 64, {.field_mask = T | N, .dtype = STEPAF_F32, .depth = 2}};

    CU_ASSERT_EQUAL(declare(job, 1, &first), STEPAF_OK);
    job->ctx->commit.changed = false;
    for (int change = 0; change < 5; change++) {
        struct advert other = first;
        if (change == 0)
            other.direction = STEPAF_PULL;
        else if (change == 1)
            other.max_bytes = 32;
        else if (change == 2)
            other.params.dtype = STEPAF_I32;
        else if (change == 3)
            other.params.depth = 1;
        else
            other.params = (stepaf_key_params_t){.field_mask = S | T | N,
                                                 .ndim = 2,
                                                 .shape = {4, 4},
                                                 .dtype = STEPAF_F32,
                                                 .depth = 2};
        CU_ASSERT_EQUAL(declare(job, 1, &other), STEPAF_ERR_INVALID);
    }
    /* The same in other words. */
    const struct advert same = {
        STEPAF_PUSH, 0, {S | T | N | K, .ndim = 1, .shape = {16}, .dtype = STEPAF_F32, .depth = 2}};
    CU_ASSERT_EQUAL(declare(job, 1, &same), STEPAF_OK);
    CU_ASSERT_EQUAL(job->ctx->memory.keys[0]->max_bytes, 64);
    CU_ASSERT_FALSE(job->ctx->commit.changed);
    fake_close(job);
}

static void keys_are_found_in_any_order(void)
{
    struct fake_job *job = fake_open(STEPAF_ATTENTION, 1, 1);
    int wrong = 0;

    CU_ASSERT_PTR_NULL(stepaf_key_find(job->ctx, 0));
    for (uint64_t i = 0; i < 500; i++)
        wrong += stepaf_key_declare(job->handle, i * 0x9e3779b97f4a7c15u, STEPAF_PUSH, 1, NULL) !=
                 STEPAF_OK;
    for (uint64_t i = 0; i < 500; i++) {
        const struct stepaf_key *key = stepaf_key_find(job->ctx, i * 0x9e3779b97f4a7c15u);
        wrong += !key || key->id != i * 0x9e3779b97f4a7c15u;
        wrong += stepaf_key_find(job->ctx, i * 0x9e3779b97f4a7c15u + 1) != NULL;
    }
    stepaf_keys_sort(job->ctx);
    for (uint32_t i = 1; i < job->ctx->memory.n_keys; i++)
        wrong += job->ctx->memory.keys[i - 1]->id >= job->ctx->memory.keys[i]->id;
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_EQUAL(job->ctx->memory.n_keys, 500);
    fake_close(job);
}

static uint8_t memory[4096];

/* An FFN rank with three attention ranks, key 1 of 2 x 100 bytes pushed, key 2 pulled. */
static struct fake_job *receiver(void)
{
    struct fake_job *job = fake_open(STEPAF_FFN, 3, 1),
                    *counterpart = fake_open(STEPAF_ATTENTION, 3, 1);

    fake_key(job, counterpart, 1, STEPAF_PUSH, 100, 2);
    fake_key(job, counterpart, 2, STEPAF_PULL, 100, 2);
    fake_close(counterpart);
    CU_ASSERT_EQUAL_FATAL(stepaf_register(job->handle, memory, sizeof memory), STEPAF_OK);
    return job;
}

static void slices_go_to_the_ranks_named(void)
{
    static const int ranks[] = {2, 0};
    struct fake_job *job = receiver();
    const struct stepaf_key *key = stepaf_key_find(job->ctx, 1);

    CU_ASSERT_EQUAL(stepaf_key_set_recv(job->handle, 1, memory + 8, 500, ranks, 2), STEPAF_OK);
    CU_ASSERT_PTR_EQUAL(stepaf_key_slice(key, 2), memory + 8);
    CU_ASSERT_PTR_EQUAL(stepaf_key_slice(key, 0), memory + 258);
    CU_ASSERT_PTR_NULL(stepaf_key_slice(key, 1));
    CU_ASSERT_EQUAL(stepaf_key_set_recv(job->handle, 1, memory + 600, 200, (int[]){1}, 1), 0);
    CU_ASSERT_PTR_EQUAL(stepaf_key_slice(key, 1), memory + 600);
    CU_ASSERT_EQUAL(job->ctx->memory.regions[0]->uses, 2);
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, memory), STEPAF_ERR_STATE);
    fake_close(job);
    job = receiver();
    CU_ASSERT_EQUAL(stepaf_key_set_recv(job->handle, 1, memory, 600, NULL, 0), STEPAF_OK);
    for (uint32_t rank = 0; rank < 3; rank++)
        CU_ASSERT_PTR_EQUAL(stepaf_key_slice(stepaf_key_find(job->ctx, 1), rank),
                            memory + rank * 200);
    fake_close(job);
}

static void bad_slices_are_refused(void)
{
    static const int good_ranks[] = {0, 1, 2}, twice[] = {0, 1, 0}, beyond[] = {0, 3},
                     negative[] = {-1};
    struct fake_job *job = receiver();
    struct {
        uint64_t key;
        size_t at, bytes;
        const int *ranks;
        int n_ranks;
        stepaf_status_t expected;
    } const cases[] = {
        {9, 0, 600, NULL, 0, STEPAF_ERR_KEY},
        {2, 0, 600, NULL, 0, STEPAF_ERR_KEY},
        {1, 0, 600, NULL, 1, STEPAF_ERR_INVALID},
        {1, 0, 600, NULL, -1, STEPAF_ERR_INVALID},
        {1, 0, 600, good_ranks, 0, STEPAF_ERR_INVALID},
        {1, 0, 600, good_ranks, -1, STEPAF_ERR_INVALID},
        {1, 0, 800, good_ranks, 4, STEPAF_ERR_INVALID},
        {1, 0, 600, twice, 3, STEPAF_ERR_INVALID},
        {1, 0, 400, beyond, 2, STEPAF_ERR_INVALID},
        {1, 0, 200, negative, 1, STEPAF_ERR_INVALID},
        {1, 0, 601, good_ranks, 3, STEPAF_ERR_INVALID},
        {1, 0, 597, good_ranks, 3, STEPAF_ERR_SIZE},
        {1, 0, 0, good_ranks, 3, STEPAF_ERR_SIZE},
        {1, 4096 - 599, 600, good_ranks, 3, STEPAF_ERR_UNREGISTERED},
        {1, 0, 4098, good_ranks, 3, STEPAF_ERR_UNREGISTERED},
    };

    job->ctx->commit.changed = false;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CU_ASSERT_EQUAL(stepaf_key_set_recv(job->handle, cases[i].key, memory + cases[i].at,
                                            cases[i].bytes, cases[i].ranks, cases[i].n_ranks),
                        cases[i].expected);
        CU_ASSERT_FALSE(job->ctx->commit.changed);
        CU_ASSERT_EQUAL(job->ctx->memory.regions[0]->uses, 0);
        CU_ASSERT_PTR_NULL(stepaf_key_slice(stepaf_key_find(job->ctx, 1), 0));
    }
    CU_ASSERT_EQUAL(stepaf_key_set_recv(job->handle, 1, memory, 200, good_ranks, 1), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_key_set_recv(job->handle, 1, memory + 200, 600, NULL, 0),
                    STEPAF_ERR_INVALID); /* rank 0 has one */
    CU_ASSERT_EQUAL(job->ctx->memory.regions[0]->uses, 1);
    fake_close(job);
}

/* Buffers for who has none: apart from each other, in one region, gone again on undo. */
static void missing_buffers_are_allocated(void)
{
    struct fake_job *job = receiver();
    struct stepaf_key *key = stepaf_key_find(job->ctx, 1);
    uint32_t n_regions = job->ctx->memory.n_regions;

    CU_ASSERT_EQUAL(stepaf_key_set_recv(job->handle, 1, memory, 200, (int[]){1}, 1), STEPAF_OK);
    for (int round = 0; round < 2; round++) {
        CU_ASSERT_EQUAL_FATAL(stepaf_key_allocate(job->ctx), STEPAF_OK);
        CU_ASSERT_EQUAL(job->ctx->memory.n_regions, n_regions + 1);
        uint8_t *first = stepaf_key_slice(key, 0), *last = stepaf_key_slice(key, 2);
        CU_ASSERT_PTR_EQUAL(stepaf_key_slice(key, 1), memory);
        CU_ASSERT_PTR_NOT_NULL_FATAL(first);
        CU_ASSERT_PTR_NOT_NULL_FATAL(last);
        CU_ASSERT(first + 200 <= last && last - first < 4096 && (last - first) % 64 == 0);
        struct stepaf_region *region = stepaf_region_find(job->ctx, first, 200);
        CU_ASSERT_PTR_NOT_NULL_FATAL(region);
        CU_ASSERT(region->target && region->mem.fd >= 0);
        CU_ASSERT_PTR_EQUAL(stepaf_region_find(job->ctx, last, 200), region);
        CU_ASSERT_EQUAL(stepaf_key_allocate(job->ctx), STEPAF_OK); /* nothing more */
        CU_ASSERT_EQUAL(job->ctx->memory.n_regions, n_regions + 1);
        stepaf_key_allocate_undo(job->ctx);
        CU_ASSERT_EQUAL(job->ctx->memory.n_regions, n_regions);
        CU_ASSERT_PTR_NULL(stepaf_key_slice(key, 0));
        CU_ASSERT_PTR_EQUAL(stepaf_key_slice(key, 1), memory);
    }
    fake_close(job);
}

static void tensors_show_their_rows(void)
{
    struct fake_job *job = fake_open(STEPAF_FFN, 1, 1);
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    for (uint32_t i = 0; i < sizeof good / sizeof *good; i++)
        CU_ASSERT_EQUAL_FATAL(declare(job, i, &good[i]), STEPAF_OK);
    const struct stepaf_key *key = stepaf_key_find(job->ctx, 4); /* 5 rows of 3 x 2 bf16 */
    for (uint32_t bytes = 0; bytes <= 60; bytes++) {
        bool whole = bytes % 12 == 0;
        stepaf_key_describe(key, 4, memory, bytes, 60, &info);
        CU_ASSERT(info.key == 4 && info.data == memory && info.bytes == bytes);
        CU_ASSERT(info.max_bytes == 60 && info.mem_kind == STEPAF_MEM_HOST);
        CU_ASSERT_EQUAL(info.dtype, whole ? STEPAF_BF16 : STEPAF_U8);
        CU_ASSERT_EQUAL(info.ndim, whole ? 3 : 1);
        CU_ASSERT_EQUAL(info.shape[0], whole ? bytes / 12 : bytes);
        CU_ASSERT(!whole || (info.shape[1] == 3 && info.shape[2] == 2));
    }
    stepaf_key_describe(stepaf_key_find(job->ctx, 2), 2, memory, 8, 8, &info);
    CU_ASSERT(info.dtype == STEPAF_F64 && info.ndim == 1 && info.shape[0] == 1);
    stepaf_key_describe(stepaf_key_find(job->ctx, 8), 8, NULL, 0, 0, &info); /* no row fits */
    CU_ASSERT(info.dtype == STEPAF_U8 && info.ndim == 1 && info.shape[0] == 0);
    stepaf_key_describe(NULL, 77, memory, 33, 40, &info); /* a pull key not declared here */
    CU_ASSERT(info.key == 77 && info.ndim == 1 && info.shape[0] == 33 && info.max_bytes == 40);
    fake_close(job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"good ones are declared", good_ones_are_declared},
        {"bad ones are refused", bad_ones_are_refused},
        {"another declaration is refused", another_declaration_is_refused},
        {"keys are found in any order", keys_are_found_in_any_order},
        {"slices go to the ranks named", slices_go_to_the_ranks_named},
        {"bad slices are refused", bad_slices_are_refused},
        {"missing buffers are allocated", missing_buffers_are_allocated},
        {"tensors show their rows", tensors_show_their_rows},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
