/* SPDX-License-Identifier: Apache-2.0 */
/* Two transports that register memory and make templates, open in one context. */
#include "core/op.h"
#include "core/plan.h"
#include "core/region.h"
#include "starts.h"

static struct stepaf_op *op_of(uint32_t plan, uint32_t slot)
{
    return &((struct stepaf_plan_obj *)stepaf_table_get(&job->ctx->tables.plans, plan))->ops[slot];
}

/* Different links of one operation have registrations and templates of their own transport. */
static void an_operation_goes_over_both(void)
{
    begin();
    fake_split(job, 1);
    fake_split(counterpart, UINT32_MAX);
    stepaf_plan_h plan = make_plan(0);
    commit();
    CU_ASSERT_EQUAL_FATAL(job->ctx->net.n_transports, 2);
    CU_ASSERT_PTR_NULL(job->ctx->net.only_ops);
    for (uint32_t seq = 0; seq < DEPTH; seq++) {
        fake_forget(job);
        (void)start(plan);
        CU_ASSERT_EQUAL_FATAL(job->n_records, PEERS);
        for (uint32_t p = 0; p < PEERS; p++) {
            const struct stepaf_post *post = op_of(0, seq)->posts[p];
            struct stepaf_transport *transport = post->link->transport;
            CU_ASSERT_PTR_EQUAL(transport, job->ctx->net.transports[p == 1]);
            CU_ASSERT_EQUAL(transport->index, p == 1);
            CU_ASSERT_PTR_NOT_NULL_FATAL(post->template);
            CU_ASSERT_PTR_EQUAL(*(struct stepaf_transport **)post->template, transport);
            for (uint32_t i = 0; i < post->n_xfer; i++)
                CU_ASSERT_PTR_EQUAL(post->xfer[i].src_mem->registration[transport->index],
                                    transport);
            CU_ASSERT_EQUAL(post->state, STEPAF_POST_SENT);
        }
    }
    end();
}

/* Memory that comes later is made known to both; what goes is taken back from both. */
static void memory_is_registered_with_both(void)
{
    void *late;

    begin();
    fake_split(job, 1);
    fake_split(counterpart, UINT32_MAX);
    commit();
    CU_ASSERT_EQUAL_FATAL(stepaf_alloc(job->handle, 100, STEPAF_MEM_HOST, &late), STEPAF_OK);
    const struct stepaf_region *region = stepaf_region_find(job->ctx, late, 100);
    CU_ASSERT_PTR_NOT_NULL_FATAL(region);
    for (unsigned t = 0; t < 2; t++)
        CU_ASSERT_PTR_EQUAL(region->mem.registration[t], job->ctx->net.transports[t]);
    CU_ASSERT(job->n_registered[0] == 2 && job->n_registered[1] == 2);
    CU_ASSERT_EQUAL(stepaf_free(job->handle, late), STEPAF_OK);
    CU_ASSERT(job->n_registered[0] == 1 && job->n_registered[1] == 1);
    end();
}

/* What one refuses is not left with the other. */
static void memory_that_one_refuses_is_in_neither(void)
{
    void *late = NULL;

    begin();
    fake_split(job, 1);
    fake_split(counterpart, UINT32_MAX);
    commit();
    job->refuses_mem = true;
    CU_ASSERT_EQUAL(stepaf_alloc(job->handle, 100, STEPAF_MEM_HOST, &late), STEPAF_ERR_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "told to refuse");
    CU_ASSERT(!late && job->n_registered[0] == 1 && job->n_registered[1] == 1);
    job->refuses_mem = false;
    CU_ASSERT_EQUAL(stepaf_alloc(job->handle, 100, STEPAF_MEM_HOST, &late), STEPAF_OK);
    end();
}

/* What a transport leaves out does nothing; what it may not leave out is named. */
static void operations_are_complete(void)
{
    for (int i = 0; stepaf_transports[i]; i++) {
        struct stepaf_transport_ops ops = stepaf_transport_complete(stepaf_transports[i]), less;
        CU_ASSERT_PTR_NULL(stepaf_transport_lacks(stepaf_transports[i]));
        CU_ASSERT(ops.reg_mem && ops.dereg_mem && ops.is_quiet && ops.fence && ops.shrink);
        CU_ASSERT(ops.finish_connects && ops.make_template && ops.retire && ops.arm);
        less = ops;
        less.post = NULL;
        CU_ASSERT_STRING_EQUAL(stepaf_transport_lacks(&less), "post");
        less = ops;
        less.dereg_mem = NULL;
        CU_ASSERT_STRING_EQUAL(stepaf_transport_lacks(&less), "dereg_mem");
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"an operation goes over both", an_operation_goes_over_both},
        {"memory is registered with both", memory_is_registered_with_both},
        {"memory that one refuses is in neither", memory_that_one_refuses_is_in_neither},
        {"operations are complete", operations_are_complete},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
