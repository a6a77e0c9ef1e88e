/* SPDX-License-Identifier: Apache-2.0 */
#include <stepaf/stepaf.hpp>

#include "cost.h"

namespace
{

template <class R> inline void check(const R &outcome)
{
    if (__builtin_expect(!outcome, 0))
        cost_fail(outcome.error());
}

} // namespace

void counted_try_start_wait(stepaf_context_h, stepaf_plan_h handle, int n)
{
    stepaf::plan plan(handle);
    for (int i = 0; i < n; i++) {
        auto request = plan.try_start();
        check(request);
        check(request->try_wait());
    }
    (void)plan.detach();
}

void counted_try_start_with(stepaf_context_h, stepaf_plan_h handle, int n)
{
    stepaf::plan plan(handle);
    stepaf::tensor push = {1, nullptr, 0};
    auto params = stepaf::start_params().push({&push, 1});
    for (int i = 0; i < n; i++) {
        push.bytes = static_cast<std::size_t>(i);
        auto request = plan.try_start(params);
        check(request);
        check(request->try_wait());
    }
    (void)plan.detach();
}

void counted_try_microbatches(stepaf_context_h, stepaf_plan_h handle, int n)
{
    stepaf::plan plan(handle);
    stepaf::request_ref request[COST_DEPTH];
    for (auto &one : request)
        check(plan.try_start(one));
    for (int i = 0; i < n; i++) {
        int m = i % COST_DEPTH;
        check(request[m].try_wait());
        check(plan.try_start(request[m]));
    }
    for (auto &one : request)
        check(one.try_wait());
    (void)plan.detach();
}

void counted_try_owned(stepaf_context_h, stepaf_plan_h handle, int n)
{
    stepaf::plan plan(handle);
    stepaf::request request[COST_DEPTH];
    auto start = [&](int m) {
        auto started = plan.try_start();
        check(started);
        request[m] = *std::move(started);
    };
    for (int m = 0; m < COST_DEPTH; m++)
        start(m);
    for (int i = 0; i < n; i++) {
        int m = i % COST_DEPTH;
        check(request[m].try_wait());
        start(m);
    }
    for (auto &one : request)
        check(one.try_wait());
    (void)plan.detach();
}

void counted_try_recv_respond(stepaf_context_h handle, stepaf_plan_h, int n)
{
    stepaf::context ctx(handle);
    for (int i = 0; i < n; i++) {
        auto batch = ctx.try_recv();
        check(batch);
        auto in = batch->try_tensor(0);
        check(in);
        cost_use(in->data, in->bytes);
        stepaf::tensor answer = {2, in->data, in->bytes};
        check(batch->try_respond({&answer, 1}));
    }
    (void)ctx.detach();
}

static stepaf::result<stepaf::request_ref> serve(stepaf::context &ctx)
{
    auto batch = ctx.try_recv();
    check(batch);
    auto in = batch->try_tensor(0);
    check(in);
    cost_use(in->data, in->bytes);
    stepaf::tensor answer = {2, in->data, in->bytes};
    return batch->try_respond_request({&answer, 1});
}

void counted_try_respond_request(stepaf_context_h handle, stepaf_plan_h, int n)
{
    stepaf::context ctx(handle);
    for (int i = 0; i < n; i++) {
        auto request = serve(ctx);
        check(request);
        check(request->try_wait());
    }
    (void)ctx.detach();
}
