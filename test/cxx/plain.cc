/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf.hpp without exceptions: results. */
#include <stepaf/stepaf.hpp>

#include "pair.hpp"

enum { X = 1, Y = 2, BYTES = 256 };

static stepaf::context join(stepaf_boot_t *boot, stepaf_role_t role)
{
    auto ctx = stepaf::context::try_init(stepaf::params().role(role), boot);
    CHECK(ctx);
    CHECK(ctx->try_key_declare(X, STEPAF_PUSH, BYTES));
    CHECK(ctx->try_key_declare(Y, STEPAF_PULL, BYTES));
    return *std::move(ctx);
}

static void attention(stepaf_boot_t *boot)
{
    auto ctx = join(boot, STEPAF_ATTENTION);
    auto memory = ctx.try_alloc(2 * BYTES);
    CHECK(memory);
    auto bytes = memory->as<unsigned char>();
    stepaf::tensor push[] = {stepaf::make_tensor(X, bytes.subspan(0, BYTES))};
    stepaf::tensor pull[] = {stepaf::make_tensor(Y, bytes.subspan(BYTES, BYTES))};
    auto plan = ctx.try_plan_create(push, pull);
    CHECK(plan && plan->try_start().error() == STEPAF_ERR_STATE);
    CHECK(ctx.try_commit());
    bytes[3] = 21;
    auto request = plan->try_start();
    CHECK(request);
    auto ref = request->ref();
    CHECK(ref.try_wait_push(0) && ref.try_wait_push(1).error() == STEPAF_ERR_INVALID);
    CHECK(ref.try_wait_tensor(0) && bytes[BYTES + 3] == 42);
    CHECK(ref.try_peer(0).error() == STEPAF_INPROGRESS);
    CHECK(ctx.try_barrier(STEPAF_GROUP_WORLD)); /* the FFN rank answers from here on */
    auto done = request->try_wait();
    CHECK(done && !*request && bytes[BYTES + 3] == 42);
    CHECK(done->try_tensor(0)->bytes == BYTES && done->try_tensor(1).error() == STEPAF_ERR_INVALID);
    CHECK(done->try_wait().error() == STEPAF_ERR_STATE);
    stepaf_member_state_t states[2];
    CHECK(ctx.try_members()->n_in == 2 && ctx.try_member_states(states));
    CHECK(states[0] == STEPAF_MEMBER_IN && states[1] == STEPAF_MEMBER_IN);
    CHECK(!*ctx.members_reason(1) && ctx.members_fd() >= -1);
    CHECK(ctx.try_members_address() || ctx.try_members_address().error() != STEPAF_OK);
    CHECK(ctx.try_set_members_callback(nullptr, nullptr));
    CHECK(ctx.try_barrier(STEPAF_GROUP_WORLD));
    CHECK(plan->try_destroy() && !*plan);
}

static void ffn(stepaf_boot_t *boot)
{
    auto ctx = join(boot, STEPAF_FFN);
    auto memory = ctx.try_alloc(BYTES);
    CHECK(ctx.try_commit());
    auto batch = ctx.try_recv();
    CHECK(batch);
    auto in = batch->try_tensor(0);
    CHECK(in && in->bytes == BYTES);
    for (int i = 0; i < BYTES; i++)
        memory->as<unsigned char>()[i] = 2 * in->as<unsigned char>()[i];
    stepaf::tensor answer = stepaf::make_tensor(Y, memory->as<unsigned char>());
    CHECK(batch->try_confirm() && batch->try_respond_tensor(0, answer) && *batch);
    CHECK(batch->try_respond_tensor(0, answer).error() == STEPAF_ERR_STATE);
    CHECK(ctx.try_barrier(STEPAF_GROUP_WORLD));
    CHECK(batch->try_respond({&answer, 1}) && !*batch);
    CHECK(batch->try_confirm().error() == STEPAF_ERR_HANDLE);
    CHECK(ctx.try_recv(stepaf::timeout(0)).error() == STEPAF_ERR_TIMEOUT);
    CHECK(ctx.try_barrier(STEPAF_GROUP_WORLD));
}

int main()
{
    return run_pair(attention, ffn);
}
