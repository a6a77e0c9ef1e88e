/* SPDX-License-Identifier: Apache-2.0 */
#include "cost.h"

static inline void check(stepaf_status_t status)
{
    if (__builtin_expect(status != STEPAF_OK, 0))
        cost_fail(status);
}

void counted_c_start_wait(stepaf_context_h ctx, stepaf_plan_h plan, int n)
{
    (void)ctx;
    for (int i = 0; i < n; i++) {
        stepaf_request_h request;
        check(stepaf_start(plan, &request));
        check(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    }
}

void counted_c_start_with(stepaf_context_h ctx, stepaf_plan_h plan, int n)
{
    stepaf_tensor_t push = {1, NULL, 0};
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = &push, .n_push = 1};
    (void)ctx;
    for (int i = 0; i < n; i++) {
        stepaf_request_h request;
        push.bytes = (size_t)i;
        check(stepaf_start_with(plan, &params, &request));
        check(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    }
}

static inline void microbatches(stepaf_plan_h plan, int n)
{
    stepaf_request_h request[COST_DEPTH];
    for (int m = 0; m < COST_DEPTH; m++)
        check(stepaf_start(plan, &request[m]));
    for (int i = 0; i < n; i++) {
        int m = i % COST_DEPTH;
        check(stepaf_wait(request[m], STEPAF_TIMEOUT_DEFAULT));
        check(stepaf_start(plan, &request[m]));
    }
    for (int m = 0; m < COST_DEPTH; m++)
        check(stepaf_wait(request[m], STEPAF_TIMEOUT_DEFAULT));
}

void counted_c_microbatches(stepaf_context_h ctx, stepaf_plan_h plan, int n)
{
    (void)ctx;
    microbatches(plan, n);
}

void counted_c_owned(stepaf_context_h ctx, stepaf_plan_h plan, int n)
{
    (void)ctx;
    microbatches(plan, n);
}

void counted_c_recv_respond(stepaf_context_h ctx, stepaf_plan_h plan, int n)
{
    (void)plan;
    for (int i = 0; i < n; i++) {
        stepaf_tensor_info_t in;
        stepaf_batch_h batch;
        int got;
        check(stepaf_recv(ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &got));
        in.size = sizeof(in);
        check(stepaf_batch_tensor(batch, 0, &in));
        cost_use(in.data, in.bytes);
        stepaf_tensor_t answer = {2, in.data, in.bytes};
        check(stepaf_respond(batch, &answer, 1, STEPAF_RESPOND_RELEASE, NULL));
    }
}

void counted_c_respond_request(stepaf_context_h ctx, stepaf_plan_h plan, int n)
{
    (void)plan;
    for (int i = 0; i < n; i++) {
        stepaf_tensor_info_t in;
        stepaf_request_h request;
        stepaf_batch_h batch;
        int got;
        check(stepaf_recv(ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &got));
        in.size = sizeof(in);
        check(stepaf_batch_tensor(batch, 0, &in));
        cost_use(in.data, in.bytes);
        stepaf_tensor_t answer = {2, in.data, in.bytes};
        check(stepaf_respond(batch, &answer, 1, STEPAF_RESPOND_RELEASE, &request));
        check(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    }
}
