/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans of two ranks at the commit, on a GPU that is made up: which go together, and what
 * becomes of a commit that cannot tell a peer of memory. */
#include <stdlib.h>

#include "core/plan.h"
#include "gpu/proxy.h"
#include "plans.h"
#include "stream_job.h"
#include "unit.h"

enum { PLANS = 3, DEPTH = STREAM_DEPTH, SMALL = 3000, LARGE = STEPAF_PIECES_MAX + 16, PULL = 500 };

static stepaf_plan_h plans[PLANS];
static uint8_t *memory;

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
    CU_ASSERT_EQUAL_FATAL(plan_create(its->handle, &push, 1, &pull, 1, STEPAF_PLAN_STREAM, &made),
                          STEPAF_OK);
    return made;
}

/* A rank of @a role and its only peer, with keys 1 and 3 to push, of @a bytes, and 2 to pull. */
static void begin(stepaf_role_t role, size_t bytes)
{
    cpu_device_begin();
    stream_job.job = fake_open(role, 1, 1);
    stream_job.other = fake_open(role == STEPAF_FFN ? STEPAF_ATTENTION : STEPAF_FFN, 1, 1);
    stream_job_key(1, STEPAF_PUSH, bytes);
    stream_job_key(2, STEPAF_PULL, PULL);
    stream_job_key(3, STEPAF_PUSH, bytes);
}

static struct stepaf_stream *stream_of(struct fake_job *its, uint32_t number)
{
    return ((struct stepaf_plan_obj *)stepaf_table_get(&its->ctx->tables.plans, number))->stream;
}

/* Where in the other rank's mailboxes what plan @a number sends comes to. */
static uint64_t goes_to(uint32_t number)
{
    const uint8_t *head = stream_of(stream_job.job, number)->launches.send[0].args.tensors[0].head;

    return (uint64_t)(head - (const uint8_t *)stream_job.job->ctx->gpu.streams->imports[0]);
}

/* ---- which go together ---- */

/* The first of one rank goes with the first of the stream_job.other, and so on: two that wrote to
 * the same place would take each other's tensors. */
static void plans_of_the_same_keys_go_together_in_order(void)
{
    for (int role = STEPAF_ATTENTION; role <= STEPAF_FFN; role++) {
        begin((stepaf_role_t)role, SMALL);
        for (int i = 0; i < PLANS; i++) {
            plans[i] = make(stream_job.job, i == 1 ? 3 : 1, 2);
            (void)make(stream_job.other, i == 0 ? 3 : 1,
                       2); /* of others the order does not matter */
        }
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        CU_ASSERT_EQUAL(goes_to(0), stream_of(stream_job.other, 1)->mailboxes[0].offset);
        CU_ASSERT_EQUAL(goes_to(1), stream_of(stream_job.other, 0)->mailboxes[0].offset);
        CU_ASSERT_EQUAL(goes_to(2), stream_of(stream_job.other, 2)->mailboxes[0].offset);
        stream_job_end();
    }
}

/* Numbers of plans that have ended are given out again. */
static void the_order_is_that_of_making(void)
{
    begin(STEPAF_ATTENTION, SMALL);
    for (int i = 0; i < 2; i++)
        plans[i] = make(stream_job.job, 1, 2);
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_destroy(plans[0]), STEPAF_OK);
    for (int i = 0; i < 2; i++) {
        plans[i] = make(stream_job.job, 1, 2); /* 0 again, behind 1; and 2 */
        (void)make(stream_job.other, 1, 2);
    }
    (void)make(stream_job.other, 1, 2);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(goes_to(1), stream_of(stream_job.other, 0)->mailboxes[0].offset);
    CU_ASSERT_EQUAL(goes_to(0), stream_of(stream_job.other, 1)->mailboxes[0].offset);
    CU_ASSERT_EQUAL(goes_to(2), stream_of(stream_job.other, 2)->mailboxes[0].offset);
    stream_job_end();
}

/* By way of the host each takes the first that comes to it: in the same order. */
static void proxies_are_in_the_order_of_making(void)
{
    static const uint32_t order[] = {1, 0, 2};
    int i = 0;

    setenv("STEPAF_CUDA_PROXY", "always", 1);
    setenv("STEPAF_PROGRESS", "thread", 1);
    begin(STEPAF_FFN, SMALL);
    unsetenv("STEPAF_CUDA_PROXY");
    unsetenv("STEPAF_PROGRESS");
    for (; i < 2; i++)
        plans[i] = make(stream_job.job, 1, 2);
    CU_ASSERT_EQUAL_FATAL(stepaf_plan_destroy(plans[0]), STEPAF_OK);
    for (; i < 4; i++)
        (void)make(stream_job.job, 1, 2);
    for (; i < 7; i++)
        (void)make(stream_job.other, 1, 2);
    CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
    i = 0;
    for (const struct stepaf_list *node = stream_job.job->ctx->gpu.proxies.next;
         node != &stream_job.job->ctx->gpu.proxies; node = node->next, i++)
        CU_ASSERT_EQUAL(stepaf_container_of(node, struct stepaf_proxy, node)->stream->plan->index,
                        order[i]);
    CU_ASSERT_EQUAL(i, PLANS);
    stream_job_end();
}

static void each_plan_has_a_counterpart_of_its_own(void)
{
    begin(STEPAF_ATTENTION, SMALL);
    (void)make(stream_job.job, 1, 2);
    (void)make(stream_job.job, 1, 2);
    (void)make(stream_job.other, 1, 2);
    CU_ASSERT_EQUAL(stream_job_commit(), STEPAF_ERR_MISMATCH);
    UNIT_CONTAINS(stepaf_last_error()->text, "world rank 0 has a stream plan (1)");
    stream_job_end();
}

/* ---- memory that cannot be told of ---- */

/* All ranks learn why, and what was in force stays so. */
static void memory_that_cannot_be_shared_is_the_verdict(void)
{
    for (int failing = 0; failing < 2; failing++) {
        begin(STEPAF_FFN, LARGE);
        (void)make(stream_job.job, 1, 2);
        (void)make(stream_job.other, 1, 2);
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        stream_job_key(4, STEPAF_PULL, 8);
        fake_pair(stream_job.job, stream_job.other);
        cpu_device.n_exports = 0;
        cpu_device.fail_export_at = 1 + failing; /* what peers write to by pieces; in place */
        CU_ASSERT_EQUAL(fake_commit(stream_job.job, stream_job.other), STEPAF_ERR_TRANSPORT);
        UNIT_CONTAINS(stepaf_last_error()->text, "cannot be shared");
        UNIT_CONTAINS(stepaf_last_error()->text, "told to fail");
        CU_ASSERT_EQUAL(stepaf_last_error()->phase, STEPAF_PHASE_COMMIT);
        if (failing)
            UNIT_CONTAINS(stepaf_last_error()->text, "key 1");
        cpu_device.fail_export_at = 0;
        CU_ASSERT_EQUAL(stream_job.job->ctx->state, STEPAF_CTX_OPEN);
        CU_ASSERT_EQUAL(stepaf_epoch(stream_job.job->handle), 1);
        CU_ASSERT_EQUAL(stream_job_commit(), STEPAF_OK);
        stream_job_end();
    }
}

/* ---- receive buffers ---- */

/* Keys have receive buffers, plans have not. What two plans receive in the same ones is brought
 * there by the receiver, in the order of its streams: nobody writes to them before. */
static void buffers_of_two_plans_are_not_written_in_place(void)
{
    for (int shared = 0; shared < 2; shared++) {
        begin(STEPAF_FFN, LARGE);
        for (int i = 0; i < 2; i++) {
            (void)make(stream_job.job, shared || !i ? 1 : 3, 2);
            (void)make(stream_job.other, shared || !i ? 1 : 3, 2);
        }
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        for (uint32_t i = 0; i < 2; i++)
            CU_ASSERT_EQUAL(stream_of(stream_job.job, i)->mailboxes[0].proto,
                            shared ? STEPAF_PROTO_BCOPY : STEPAF_PROTO_ZCOPY);
        stream_job_end();
    }
}

static int count_mapped(void)
{
    int n = 0;

    for (int i = 0; i < CPU_PIECES; i++)
        n += cpu_device.pieces[i].base && cpu_device.pieces[i].by;
    return n;
}

/* Memory of this process is used as it is if the peer is in this process, and not if the peer's
 * advert alone says so. */
static void only_ranks_of_this_process_have_its_memory(void)
{
    for (int same = 0; same < 2; same++) {
        stream_job_begin(STEPAF_ATTENTION);
        struct stepaf_ctx *ctx = stream_job.job->ctx;
        if (!same)
            ctx->job.ranks[ctx->peers[0].who.world_rank].pid++;
        CU_ASSERT_EQUAL_FATAL(stream_job_commit(), STEPAF_OK);
        CU_ASSERT_EQUAL(count_mapped(), same ? 0 : 1);
        CU_ASSERT(ctx->gpu.streams->n_imports > 0);
        stream_job_end();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"plans of the same keys go in order", plans_of_the_same_keys_go_together_in_order},
        {"the order is that of making", the_order_is_that_of_making},
        {"proxies are in the order of making", proxies_are_in_the_order_of_making},
        {"each plan has a counterpart of its own", each_plan_has_a_counterpart_of_its_own},
        {"memory that cannot be shared", memory_that_cannot_be_shared_is_the_verdict},
        {"buffers of two plans", buffers_of_two_plans_are_not_written_in_place},
        {"only ranks of this process have its memory", only_ranks_of_this_process_have_its_memory},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
