/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory: which range is in which region, and where peers may write. */
#include <stdlib.h>

#include "core/region.h"
#include "device/gpu.h"
#include "fake.h"
#include "unit.h"

enum { PLACE = 1 << 16 };

static struct fake_job *job;
static uint8_t *place; /* memory to register pieces of */

static void begin(void)
{
    job = fake_open(STEPAF_FFN, 1, 1);
    place = malloc(PLACE);
    CU_ASSERT_PTR_NOT_NULL_FATAL(place);
}

static void end(void)
{
    fake_close(job);
    free(place);
}

static struct stepaf_region *add(size_t at, size_t bytes)
{
    CU_ASSERT_EQUAL_FATAL(stepaf_register(job->handle, place + at, bytes), STEPAF_OK);
    struct stepaf_region *region = stepaf_region_find(job->ctx, place + at, bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(region);
    CU_ASSERT_PTR_EQUAL(region->mem.base, place + at);
    CU_ASSERT_EQUAL(region->mem.bytes, bytes);
    return region;
}

static struct stepaf_region *find(size_t at, size_t bytes)
{
    job->ctx->memory.last = NULL; /* by bisection */
    struct stepaf_region *found = stepaf_region_find(job->ctx, place + at, bytes);
    CU_ASSERT_PTR_EQUAL(stepaf_region_find(job->ctx, place + at, bytes), found);
    return found;
}

static void ranges_are_found(void)
{
    begin();
    CU_ASSERT_PTR_NULL(find(0, 1));
    struct stepaf_region *low = add(1000, 100), *high = add(5000, 1000);
    struct stepaf_region *middle = add(1100, 50); /* right behind the first */

    CU_ASSERT_PTR_EQUAL(find(1000, 1), low);
    CU_ASSERT_PTR_EQUAL(find(1099, 1), low);
    CU_ASSERT_PTR_EQUAL(find(1000, 100), low);
    CU_ASSERT_PTR_EQUAL(find(1100, 50), middle);
    CU_ASSERT_PTR_EQUAL(find(5999, 1), high);
    CU_ASSERT_PTR_EQUAL(find(5000, 1000), high);
    CU_ASSERT_PTR_NULL(find(999, 1));
    CU_ASSERT_PTR_NULL(find(999, 2));
    CU_ASSERT_PTR_NULL(find(1000, 101)); /* two regions are not one, even side by side */
    CU_ASSERT_PTR_NULL(find(1150, 1));
    CU_ASSERT_PTR_NULL(find(5999, 2));
    CU_ASSERT_PTR_NULL(find(6000, 1));
    CU_ASSERT_PTR_NULL(stepaf_region_find(job->ctx, place + 5000, SIZE_MAX));
    CU_ASSERT_PTR_NULL(stepaf_region_find(job->ctx, (void *)UINTPTR_MAX, 1));
    CU_ASSERT_PTR_NULL(stepaf_region_find(job->ctx, NULL, 1));
    end();
}

/* The last find is remembered: it may not outlive its region. */
static void what_is_removed_is_not_found(void)
{
    begin();
    (void)add(0, 100);
    (void)add(100, 100);
    CU_ASSERT_PTR_NOT_NULL(stepaf_region_find(job->ctx, place, 100));
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, place), STEPAF_OK);
    CU_ASSERT_PTR_NULL(stepaf_region_find(job->ctx, place, 100));
    CU_ASSERT_PTR_NOT_NULL(stepaf_region_find(job->ctx, place + 100, 100));
    CU_ASSERT_EQUAL(job->ctx->memory.n_regions, 1);
    end();
}

static void overlaps_are_refused(void)
{
    begin();
    (void)add(1000, 100);
    (void)add(2000, 1);
    static const size_t overlaps[][2] = {{1000, 100}, {1000, 1}, {1099, 1},  {999, 2},
                                         {1099, 2},   {0, 1001}, {0, PLACE}, {1050, 951},
                                         {2000, 1},   {1999, 2}};
    for (size_t i = 0; i < sizeof overlaps / sizeof *overlaps; i++)
        CU_ASSERT_EQUAL(stepaf_register(job->handle, place + overlaps[i][0], overlaps[i][1]),
                        STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(job->ctx->memory.n_regions, 2);
    (void)add(0, 1000);
    (void)add(1100, 900);
    (void)add(2001, PLACE - 2001);
    CU_ASSERT_EQUAL(job->ctx->memory.n_regions, 5);
    end();
}

static void bad_ranges_are_refused(void)
{
    begin();
    CU_ASSERT_EQUAL(stepaf_register(job->handle, NULL, 10), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_register(job->handle, place, 0), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_register(job->handle, place, SIZE_MAX), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_register(job->handle, place, ((size_t)1 << 40) + 1), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_register(job->handle, (void *)UINTPTR_MAX, 2), STEPAF_ERR_INVALID);
    void *memory = place;
    CU_ASSERT_EQUAL(stepaf_alloc(job->handle, 0, STEPAF_MEM_HOST, &memory), STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_alloc(job->handle, SIZE_MAX, STEPAF_MEM_HOST, &memory),
                    STEPAF_ERR_INVALID);
    CU_ASSERT_EQUAL(stepaf_alloc(job->handle, 1, (stepaf_mem_kind_t)7, &memory),
                    STEPAF_ERR_UNSUPPORTED);
    char reason[STEPAF_REASON_MAX];
    if (!stepaf_gpu_probe(reason)) {
        CU_ASSERT_EQUAL(stepaf_alloc(job->handle, 1, STEPAF_MEM_CUDA, &memory),
                        STEPAF_ERR_UNSUPPORTED);
        UNIT_CONTAINS(stepaf_last_error()->text, reason);
    }
    CU_ASSERT_PTR_EQUAL(memory, place);
    CU_ASSERT_EQUAL(job->ctx->memory.n_regions, 0);
    end();
}

static void only_its_start_ends_a_region(void)
{
    void *memory;

    begin();
    struct stepaf_region *region = add(1000, 100);
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 100, STEPAF_MEM_HOST, &memory), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, place + 1001), STEPAF_ERR_UNREGISTERED);
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, place), STEPAF_ERR_UNREGISTERED);
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, NULL), STEPAF_ERR_UNREGISTERED);
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, memory), STEPAF_ERR_UNREGISTERED);
    CU_ASSERT_EQUAL(stepaf_free(job->handle, place + 1000), STEPAF_ERR_UNREGISTERED);
    CU_ASSERT_EQUAL(stepaf_free(job->handle, (uint8_t *)memory + 1), STEPAF_ERR_UNREGISTERED);
    region->uses = 1;
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, place + 1000), STEPAF_ERR_STATE);
    region->uses = 0;
    CU_ASSERT_EQUAL(job->ctx->memory.n_regions, 2);
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, place + 1000), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_free(job->handle, memory), STEPAF_OK);
    CU_ASSERT_EQUAL(stepaf_free(job->handle, memory), STEPAF_ERR_UNREGISTERED);
    CU_ASSERT_EQUAL(job->ctx->memory.n_regions, 0);
    end();
}

static void use_it(struct fake_job *used)
{
    used->ctx->memory.regions[0]->uses = 1;
}

/* Until peers have acknowledged what was sent, a device may read it again. */
static void memory_stays_until_devices_are_done(void)
{
    begin();
    (void)add(0, 100);
    job->unquiet = 5;
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, place), STEPAF_OK);
    CU_ASSERT_EQUAL(job->unquiet, 0);

    struct stepaf_region *region = add(0, 100);
    job->ctx->env.timeout_us = 20000;
    job->unquiet = UINT32_MAX;
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, place), STEPAF_ERR_TIMEOUT);
    UNIT_CONTAINS(stepaf_last_error()->text,
                  "attention rank 0 (world rank 0) has not acknowledged");
    CU_ASSERT_EQUAL(stepaf_last_error()->peer_world_rank, 0);
    CU_ASSERT_PTR_EQUAL(find(0, 100), region);

    job->ctx->env.timeout_us = 10000000; /* and meanwhile a plan of another thread's uses it */
    job->on_progress = use_it;
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, place), STEPAF_ERR_STATE);
    CU_ASSERT_PTR_EQUAL(find(0, 100), region);
    job->on_progress = NULL;
    job->unquiet = 0;
    region->uses = 0;
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, place), STEPAF_OK);
    end();
}

/* A number that a peer may still name never stands for other memory. */
static void numbers_are_not_reused(void)
{
    begin();
    uint32_t first = add(0, 100)->mem.id;
    CU_ASSERT_EQUAL(stepaf_deregister(job->handle, place), STEPAF_OK);
    CU_ASSERT_NOT_EQUAL(add(0, 100)->mem.id, first);
    end();
}

static void allocated_memory_is_whole_pages_of_zeros(void)
{
    void *memory;
    int wrong = 0;

    begin();
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 5000, STEPAF_MEM_HOST, &memory), STEPAF_OK);
    struct stepaf_region *region = stepaf_region_find(job->ctx, memory, 5000);
    CU_ASSERT_PTR_NOT_NULL_FATAL(region);
    CU_ASSERT(region->mem.bytes >= 5000 && region->mem.bytes % 4096 == 0 && region->mem.fd >= 0);
    for (size_t i = 0; i < region->mem.bytes; i++)
        wrong += region->mem.base[i] != 0;
    CU_ASSERT_EQUAL(wrong, 0);
    end(); /* frees it */
}

/* So that what copies there is careful. */
static void a_target_is_the_callers_or_the_librarys(void)
{
    struct stepaf_region *own;

    begin();
    struct stepaf_upcalls *up = &job->ctx->up;
    struct stepaf_region *lent = add(1000, 100);
    CU_ASSERT_EQUAL_FATAL(stepaf_region_alloc(job->ctx, 5000, STEPAF_MEM_HOST, &own), STEPAF_OK);
    lent->target = own->target = true;
    CU_ASSERT_TRUE(up->resolve(up, lent->mem.id, 0, 1).mem->lent);
    CU_ASSERT_FALSE(up->resolve(up, own->mem.id, 0, 1).mem->lent);
    end();
}

static void peers_write_to_targets_only(void)
{
    struct stepaf_upcalls *up;

    begin();
    up = &job->ctx->up;
    struct stepaf_region *region = add(1000, 100);
    (void)add(2000, 100);
    CU_ASSERT_PTR_NULL(up->resolve(up, region->mem.id, 0, 1).at);
    region->target = true;
    CU_ASSERT_PTR_EQUAL(up->resolve(up, region->mem.id, 0, 1).at, place + 1000);
    CU_ASSERT_PTR_EQUAL(up->resolve(up, region->mem.id, 0, 100).at, place + 1000);
    CU_ASSERT_PTR_EQUAL(up->resolve(up, region->mem.id, 99, 1).at, place + 1099);
    CU_ASSERT_PTR_EQUAL(up->resolve(up, region->mem.id, 100, 0).at, place + 1100);
    CU_ASSERT_PTR_NULL(up->resolve(up, region->mem.id, 0, 101).at);
    CU_ASSERT_PTR_NULL(up->resolve(up, region->mem.id, 100, 1).at);
    CU_ASSERT_PTR_NULL(up->resolve(up, region->mem.id, 101, 0).at);
    CU_ASSERT_PTR_NULL(up->resolve(up, region->mem.id, UINT64_MAX, 1).at);
    CU_ASSERT_PTR_NULL(up->resolve(up, region->mem.id, UINT64_MAX - 98, 100).at);
    CU_ASSERT_PTR_NULL(up->resolve(up, region->mem.id, 1, UINT32_MAX).at);
    CU_ASSERT_PTR_NULL(up->resolve(up, region->mem.id + 1, 0, 1).at);
    CU_ASSERT_PTR_NULL(up->resolve(up, region->mem.id + 7, 0, 1).at);
    CU_ASSERT_PTR_NULL(up->resolve(up, UINT32_MAX, 0, 1).at);
    end();
}

/* A byte map says what is registered: begin of region, or 0. */
static void random_steps_agree_with_a_model(void)
{
    enum { MAP = 512, STEPS = 4000 };
    uint16_t map[MAP + 1] = {0};            /* 1 + where the byte's region begins; 0: none */
    uint32_t random = 7, gone = UINT32_MAX; /* the number of one that was removed */
    int wrong = 0;

    begin();
    struct stepaf_upcalls *up = &job->ctx->up;
    for (int step = 0; step < STEPS; step++) {
        random = random * 1664525u + 1013904223u;
        size_t at = (random >> 8) % MAP, bytes = 1 + (random >> 20) % 40;
        bool free_here = at + bytes <= MAP;
        for (size_t i = at; i < at + bytes && free_here; i++)
            free_here = !map[i];
        bool whole = at + bytes <= MAP && map[at];
        for (size_t i = at; i < at + bytes && whole; i++)
            whole = map[i] == map[at];
        struct stepaf_region *found = stepaf_region_find(job->ctx, place + at, bytes);
        wrong += (found != NULL) != whole;
        wrong += found && found->mem.base != place + map[at] - 1;
        if (found)
            found->target = true;
        wrong += found && up->resolve(up, found->mem.id, 0, 1).at != found->mem.base;
        wrong += up->resolve(up, gone, 0, 1).at != NULL;
        if (random >> 31 && at + bytes <= MAP) {
            bool added = stepaf_register(job->handle, place + at, bytes) == STEPAF_OK;
            wrong += added != free_here;
            for (size_t i = at; added && i < at + bytes; i++)
                map[i] = (uint16_t)(at + 1);
        } else if (map[at] == at + 1) {
            gone = stepaf_region_find(job->ctx, place + at, 1)->mem.id;
            wrong += stepaf_deregister(job->handle, place + at) != STEPAF_OK;
            for (size_t i = at; map[i] == at + 1; i++)
                map[i] = 0;
        } else {
            wrong += stepaf_deregister(job->handle, place + at) != STEPAF_ERR_UNREGISTERED;
        }
    }
    CU_ASSERT_EQUAL(wrong, 0);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"ranges are found", ranges_are_found},
        {"what is removed is not found", what_is_removed_is_not_found},
        {"overlaps are refused", overlaps_are_refused},
        {"bad ranges are refused", bad_ranges_are_refused},
        {"only its start ends a region", only_its_start_ends_a_region},
        {"memory stays until devices are done", memory_stays_until_devices_are_done},
        {"numbers are not reused", numbers_are_not_reused},
        {"allocated memory is whole pages of zeros", allocated_memory_is_whole_pages_of_zeros},
        {"a target is the caller's or the library's", a_target_is_the_callers_or_the_librarys},
        {"peers write to targets only", peers_write_to_targets_only},
        {"random steps agree with a model", random_steps_agree_with_a_model},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
