/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans of two ranks at the commit, on a GPU that is made up: what becomes of a commit that cannot
 * tell a peer of memory. */
#include "cuda_fake.h"
#include "engine/stream.h"
#include "fake.h"
#include "unit.h"

enum { DEPTH = 2, SMALL = 3000, LARGE = STEPAF_PIECES_MAX + 16, PULL = 500 };

static struct fake_job *job, *other;
static uint8_t *memory;

static void key(uint64_t id, stepaf_direction_t direction, size_t bytes)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DIRECTION | STEPAF_KEY_MAX_BYTES |
                                                STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .direction = direction,
                                  .max_bytes = bytes,
                                  .depth = DEPTH,
                                  .mem_kind = STEPAF_MEM_CUDA};

    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(job->handle, id, &params), STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(other->handle, id, &params), STEPAF_OK);
}

/* A plan that pushes key @a push and pulls key @a pull, in memory of its own. */
static stepaf_plan_h make(struct fake_job *its, uint64_t push_id, uint64_t pull_id)
{
    stepaf_tensor_t push = {.key = push_id}, pull = {.key = pull_id, .bytes = PULL};
    stepaf_plan_h made = NULL;

    CU_ASSERT_EQUAL_FATAL(
        stepaf_alloc(its->handle, LARGE + (size_t)DEPTH * PULL, STEPAF_MEM_CUDA, (void **)&memory),
        STEPAF_OK);
    pull.data = memory + LARGE;
    if (its->ctx->role == STEPAF_ATTENTION) {
        push.data = memory;
        push.bytes = SMALL;
    }
    CU_ASSERT_EQUAL_FATAL(
        stepaf_plan_create(its->handle, &push, 1, &pull, 1, STEPAF_PLAN_STREAM, &made), STEPAF_OK);
    return made;
}

/* A rank of @a role and its only peer, with keys 1 and 3 to push, of @a bytes, and 2 to pull. */
static void begin(stepaf_role_t role, size_t bytes)
{
    cuda_fake_begin();
    job = fake_open(role, 1, 1);
    other = fake_open(role == STEPAF_FFN ? STEPAF_ATTENTION : STEPAF_FFN, 1, 1);
    key(1, STEPAF_PUSH, bytes);
    key(2, STEPAF_PULL, PULL);
    key(3, STEPAF_PUSH, bytes);
}

static stepaf_status_t commit(void)
{
    fake_pair(job, other);
    CU_ASSERT_EQUAL_FATAL(stepaf_streams_prepare(other->ctx), STEPAF_OK);
    return fake_commit(job, other);
}

static void end(void)
{
    fake_close(job);
    fake_close(other);
    CU_ASSERT_EQUAL(cuda_fake.n_held, 0);
    CU_ASSERT_EQUAL(cuda_fake_count(), 0);
    cuda_fake_end();
}

/* ---- memory that cannot be told of ---- */

/* All ranks learn why, and what was in force stays so. */
static void memory_that_cannot_be_shared_is_the_verdict(void)
{
    for (int failing = 0; failing < 2; failing++) {
        begin(STEPAF_FFN, LARGE);
        (void)make(job, 1, 2);
        (void)make(other, 1, 2);
        CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
        key(4, STEPAF_PULL, 8);
        fake_pair(job, other);
        cuda_fake.n_ipc = 0;
        cuda_fake.fail_ipc_at = 1 + failing; /* what peers write to by pieces; in place */
        CU_ASSERT_EQUAL(fake_commit(job, other), STEPAF_ERR_TRANSPORT);
        UNIT_CONTAINS(stepaf_last_error()->text, "cannot be shared");
        UNIT_CONTAINS(stepaf_last_error()->text, "told to fail");
        CU_ASSERT_EQUAL(stepaf_last_error()->phase, STEPAF_PHASE_COMMIT);
        if (failing)
            UNIT_CONTAINS(stepaf_last_error()->text, "key 1");
        cuda_fake.fail_ipc_at = 0;
        CU_ASSERT_EQUAL(job->ctx->state, STEPAF_CTX_OPEN);
        CU_ASSERT_EQUAL(stepaf_epoch(job->handle), 1);
        CU_ASSERT_EQUAL(commit(), STEPAF_OK);
        end();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"memory that cannot be shared", memory_that_cannot_be_shared_is_the_verdict},
        CU_TEST_INFO_NULL,
    };
    return unit_run("stream_pairs", tests);
}
