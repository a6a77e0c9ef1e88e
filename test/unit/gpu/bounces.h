/* SPDX-License-Identifier: Apache-2.0 */
/* A rank whose tensors are in GPU memory, and its counterpart of the other role, for the tests of
 * bounce buffers. */
#ifndef STEPAF_TEST_BOUNCES_H
#define STEPAF_TEST_BOUNCES_H

#include "core/region.h"
#include "cpu_device/cpu_device.h"
#include "drop.h"
#include "gpu/bounce.h"

enum { PUSHED = 1, PULLED = 2, BYTES = 100, DEPTH = 2, PEERS = 2, PLAN = 5, PLACE = 1000 };

static struct fake_job *job, *counterpart;
static uint8_t
    *gpu_memory; /* of the job, registered: PLACE bytes to push from, then to pull into */
static stepaf_plan_h plan;

static inline void declare(struct fake_job *one, uint64_t id, stepaf_direction_t direction)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .mem_kind = STEPAF_MEM_CUDA,
                                  .depth = DEPTH};

    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(one->handle, id, direction, BYTES, &params),
                          STEPAF_OK);
}

static inline void open_jobs(stepaf_role_t role, bool takes)
{
    int n_attention = role == STEPAF_ATTENTION ? 1 : PEERS;

    job = fake_open(role, n_attention, PEERS + 1 - n_attention);
    counterpart = fake_open(role == STEPAF_ATTENTION ? STEPAF_FFN : STEPAF_ATTENTION, n_attention,
                            PEERS + 1 - n_attention);
    if (takes)
        fake_take_gpu(job);
    declare(job, PUSHED, STEPAF_PUSH);
    declare(counterpart, PUSHED, STEPAF_PUSH);
    declare(job, PULLED, STEPAF_PULL);
    declare(counterpart, PULLED, STEPAF_PULL);
    gpu_memory = cpu_device_piece((size_t)2 * PLACE, 0, true)->base;
    CU_ASSERT_EQUAL_FATAL(stepaf_register(job->handle, gpu_memory, (size_t)2 * PLACE), STEPAF_OK);
    for (int i = 0; i < 2 * PLACE; i++)
        gpu_memory[i] = (uint8_t)(i * 7);
}

/* The counterpart is ready for what the job will say. */
static inline void commit(void)
{
    fake_pair(job, counterpart);
    CU_ASSERT_EQUAL_FATAL(stepaf_bounces_prepare(counterpart->ctx), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(fake_commit(job, counterpart), STEPAF_OK);
    fake_forget(job);
}

static inline void end(void)
{
    EXPECT_WHOLE(job);
    fake_close(job);
    fake_close(counterpart);
    CU_ASSERT_EQUAL(cpu_device.n_held, 0);
    cpu_device_end();
}

static inline const struct stepaf_region *region(void)
{
    return stepaf_region_find(job->ctx, gpu_memory, 1);
}

static inline int n_pinned(void)
{
    int n = 0;

    for (uint32_t i = 0; i < job->ctx->memory.n_regions; i++)
        n += job->ctx->memory.regions[i]->bounce && job->ctx->memory.regions[i]->bounce->pinned;
    return n;
}

/* What a transport writes that carries host memory: where the core says. */
static inline void write_bounced(const struct stepaf_region *at, size_t offset, uint8_t value)
{
    uint8_t *room = job->ctx->up.resolve(&job->ctx->up, at->mem.id, offset, BYTES).at;

    CU_ASSERT_PTR_NOT_NULL_FATAL(room);
    CU_ASSERT(room < gpu_memory || room >= gpu_memory + 2 * PLACE);
    memset(room, value, BYTES);
}

static inline bool is_all(const uint8_t *bytes, uint8_t value)
{
    for (int i = 0; i < BYTES; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

#endif
