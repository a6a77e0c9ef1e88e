/* SPDX-License-Identifier: Apache-2.0 */
#include <stepaf/stepaf.hpp>

#include "cost.h"

/* Handles are the caller's: what takes them over gives them up again. */
template <class Owner, class Handle> struct lent : Owner {
    explicit lent(Handle handle) : Owner(handle)
    {
    }
    ~lent()
    {
        (void)this->detach();
    }
};
using lent_context = lent<stepaf::context, stepaf_context_h>;
using lent_plan = lent<stepaf::plan, stepaf_plan_h>;

void counted_cxx_start_wait(stepaf_context_h, stepaf_plan_h handle, int n)
{
    lent_plan plan(handle);
    for (int i = 0; i < n; i++) {
        auto request = plan.start();
        request.wait();
    }
}

void counted_cxx_start_with(stepaf_context_h, stepaf_plan_h handle, int n)
{
    lent_plan plan(handle);
    stepaf::tensor push = {1, nullptr, 0};
    auto params = stepaf::start_params().push({&push, 1});
    for (int i = 0; i < n; i++) {
        push.bytes = static_cast<std::size_t>(i);
        auto request = plan.start(params);
        request.wait();
    }
}

void counted_cxx_microbatches(stepaf_context_h, stepaf_plan_h handle, int n)
{
    lent_plan plan(handle);
    stepaf::request_ref request[COST_DEPTH];
    for (auto &one : request)
        plan.start(one);
    for (int i = 0; i < n; i++) {
        int m = i % COST_DEPTH;
        request[m].wait();
        plan.start(request[m]);
    }
    for (auto &one : request)
        one.wait();
}

void counted_cxx_owned(stepaf_context_h, stepaf_plan_h handle, int n)
{
    lent_plan plan(handle);
    stepaf::request request[COST_DEPTH];
    for (auto &one : request)
        one = plan.start();
    for (int i = 0; i < n; i++) {
        int m = i % COST_DEPTH;
        request[m].wait();
        request[m] = plan.start();
    }
    for (auto &one : request)
        one.wait();
}

void counted_cxx_recv_respond(stepaf_context_h handle, stepaf_plan_h, int n)
{
    lent_context ctx(handle);
    for (int i = 0; i < n; i++) {
        auto batch = ctx.recv();
        auto in = batch.tensor(0);
        cost_use(in.data, in.bytes);
        stepaf::tensor answer = {2, in.data, in.bytes};
        batch.respond({&answer, 1});
    }
}

/* The batch ends here: after a further call it would be looked at whether it is still held. */
static stepaf::request_ref serve(stepaf::context &ctx)
{
    auto batch = ctx.recv();
    auto in = batch.tensor(0);
    cost_use(in.data, in.bytes);
    stepaf::tensor answer = {2, in.data, in.bytes};
    return batch.respond_request({&answer, 1});
}

void counted_cxx_respond_request(stepaf_context_h handle, stepaf_plan_h, int n)
{
    lent_context ctx(handle);
    for (int i = 0; i < n; i++)
        serve(ctx).wait();
}
