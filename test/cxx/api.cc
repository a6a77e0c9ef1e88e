/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf.hpp between two ranks: owners, spans, exceptions and results. */
#include <cstring>
#include <numeric>
#include <vector>

#include <stepaf/stepaf.hpp>

#include "pair.hpp"

using namespace std::chrono_literals;

enum { X = 1, Y = 2, Z = 3, N = 512, DEPTH = 2 };

/* A call that has to throw E; its status is compared, too. */
template <class E, class F> static void throws(stepaf_status_t status, F &&call)
{
    try {
        call();
    } catch (const E &failure) {
        CHECK(failure.status() == status);
        CHECK(std::strlen(failure.what()) > 0);
        return;
    }
    CHECK(!"it has to throw");
}

/* What a call says that polls, or that C++ refuses by itself: not what was recorded before. */
template <class E, class F> static void says_by_itself(stepaf_status_t status, F &&call)
{
    try {
        call();
    } catch (const E &failure) {
        CHECK(failure.status() == status && failure.phase() == STEPAF_PHASE_NONE);
        CHECK(std::strcmp(failure.what(), stepaf_status_text(status)) == 0);
        return;
    }
    CHECK(!"it has to throw");
}

static stepaf::context join(stepaf_boot_t *boot, stepaf_role_t role)
{
    auto ctx = stepaf::context::init(stepaf::params().role(role), boot);
    auto how = stepaf::key_params().dtype(STEPAF_F32).shape({N / 4, 4}).depth(DEPTH);
    ctx.key_declare(X, STEPAF_PUSH, N * sizeof(float), how);
    ctx.key_declare(Y, STEPAF_PULL, N * sizeof(float), how);
    ctx.key_declare(Z, STEPAF_PUSH, 64);
    CHECK(ctx.role() == role && ctx.n_peers() == 1);
    CHECK(ctx.rank(STEPAF_GROUP_WORLD) == (role == STEPAF_FFN));
    CHECK(ctx.default_timeout() > 0us && stepaf::context().default_timeout() < 0us);
    return ctx;
}

/* Owners and what they leave behind, without a peer. */
static void test_owners(stepaf::context &ctx)
{
    stepaf::memory none;
    CHECK(!none && none.bytes() == 0 && none.as<float>().empty());
    auto a = ctx.alloc(4096), b = std::move(a);
    CHECK(!a && b && b.bytes() == 4096 && b.as<double>().size() == 512);
    void *address = b.data();
    a = std::move(b);
    CHECK(a.data() == address);
    a.end();
    CHECK(!a);
    std::vector<char> mine(4096);
    {
        auto held = ctx.register_memory(mine.data(), mine.size());
        throws<stepaf::error>(STEPAF_ERR_INVALID,
                              [&] { (void)ctx.register_memory(mine.data(), mine.size()); });
    }
    ctx.register_memory(mine.data(), mine.size()).end(); /* the first one has ended */

    throws<stepaf::error>(STEPAF_ERR_KEY, [&] { ctx.key_withdraw(99); });
    CHECK(ctx.try_key_withdraw(99).error() == STEPAF_ERR_KEY);
    CHECK(!ctx.try_alloc(0) && ctx.try_alloc(0).error() == STEPAF_ERR_INVALID);
    throws<stepaf::error>(STEPAF_ERR_INVALID, [&] {
        ctx.key_declare(9, STEPAF_PUSH, 8, stepaf::key_params().shape({}));
    });
    auto nine = stepaf::key_params().shape({1, 1, 1, 1, 1, 1, 1, 1, 8});
    CHECK(ctx.try_key_declare(9, STEPAF_PUSH, 8, nine).error() == STEPAF_ERR_INVALID);
}

static_assert(stepaf::timeout(-1us).count() == 0 && stepaf::timeout(-5h).count() == 0);
static_assert(stepaf::timeout(0s).count() == 0 && stepaf::timeout(2s).count() == 2000000);
static_assert(stepaf::timeout(std::chrono::hours::max()).count() == INT64_MAX);
static_assert(stepaf::timeout(std::chrono::microseconds::max()).count() == INT64_MAX);
static_assert(stepaf::timeout(std::chrono::duration<unsigned char>(255)).count() == 255000000);
static_assert(stepaf::timeout_default.count() == STEPAF_TIMEOUT_DEFAULT);

/* What std::span has, and its stand-in before C++20. */
static void test_spans()
{
    int numbers[] = {1, 2, 3, 4};
    stepaf::span<int> all(numbers);
    CHECK(all.front() == 1 && all.back() == 4);
    CHECK(all.first(2).size() == 2 && all.first(2).back() == 2);
    CHECK(all.last(3).size() == 3 && all.last(3).front() == 2);
    CHECK(all.subspan(1).size() == 3 && all.subspan(1).front() == 2 && all.subspan(4).empty());
    CHECK(all.subspan(1, 2).back() == 3);
}

/* What polls, with no slot free and no answer there: a timeout of 0, or one that has passed. */
static void test_polls(stepaf::context &ctx, stepaf::plan &plan, stepaf::request &pending)
{
    auto began = std::chrono::steady_clock::now();
    for (auto limit : {0us, -1us, -5000us}) {
        auto params = stepaf::start_params().wait(limit);
        throws<stepaf::timeout_error>(STEPAF_ERR_TIMEOUT, [&] { (void)plan.start(params); });
        CHECK(stepaf_last_error()->status == STEPAF_ERR_TIMEOUT);
        says_by_itself<stepaf::timeout_error>(STEPAF_ERR_TIMEOUT, [&] { pending.wait(limit); });
    }
    CHECK(std::chrono::steady_clock::now() - began < ctx.default_timeout() / 2);
}

static void attention(stepaf_boot_t *boot)
{
    auto ctx = join(boot, STEPAF_ATTENTION);
    test_owners(ctx);
    auto x = ctx.alloc(N * sizeof(float)), y = ctx.alloc(DEPTH * N * sizeof(float));
    auto xs = x.as<float>(), ys = y.as<float>();
    stepaf::tensor push[] = {stepaf::make_tensor(X, xs)};
    stepaf::tensor pull[] = {stepaf::make_tensor(Y, ys.subspan(0, N))};
    auto plan = ctx.plan_create(push, pull);
    throws<stepaf::error>(STEPAF_ERR_STATE, [&] { (void)plan.start(); });
    CHECK(ctx.epoch() == 0);
    ctx.commit();
    CHECK(ctx.epoch() == 1 && plan.depth() == DEPTH);
    std::iota(xs.begin(), xs.end(), 1.0f);

    /* One exchange. */
    auto request = plan.start();
    CHECK(request && request.slot() == 0);
    auto done = request.wait();
    CHECK(!request);
    CHECK(done.tensor(0).as<float>()[N - 1] == 2 * N && done.tensor(0).dims().size() == 2);
    CHECK(done.sent() && done.peer(0) && done.timeline(0).start_ns > 0);
    throws<stepaf::error>(STEPAF_ERR_STATE, [&] { done.wait(); });

    /* One that is answered step by step. */
    auto steps = plan.start(stepaf::start_params().wait());
    throws<stepaf::timeout_error>(STEPAF_ERR_TIMEOUT, [&] { steps.ref().wait_push(0, 0us); });
    ctx.barrier(STEPAF_GROUP_WORLD);
    steps.ref().wait_push(0);
    throws<stepaf::timeout_error>(STEPAF_ERR_TIMEOUT, [&] { steps.ref().wait_tensor(0, 0us); });
    throws<stepaf::timeout_error>(STEPAF_ERR_TIMEOUT, [&] { steps.ref().wait_tensor(0, 1us); });
    says_by_itself<stepaf::timeout_error>(STEPAF_ERR_TIMEOUT,
                                          [&] { steps.ref().try_wait_tensor(0, 0us).value(); });
    says_by_itself<stepaf::timeout_error>(STEPAF_ERR_TIMEOUT, [&] { steps.try_wait(0us).value(); });
    says_by_itself<stepaf::timeout_error>(STEPAF_ERR_TIMEOUT, [&] { steps.wait(0us); });
    ctx.barrier(STEPAF_GROUP_WORLD);
    steps.ref().wait_tensor(0);
    CHECK(steps.ref().tensor(0).as<float>()[N - 1] == 3 * N && !steps.ref().peer(0));
    CHECK(!steps.test());
    ctx.barrier(STEPAF_GROUP_WORLD);
    steps.wait().wait_push(0);

    /* A smaller one, and slots that run out. */
    stepaf::tensor less[] = {{X, x.data(), 16}};
    stepaf::request two[] = {plan.start(stepaf::start_params().wait(5s).push(less)),
                             plan.start(stepaf::start_params().wait(5s))};
    throws<stepaf::would_block_error>(STEPAF_ERR_WOULD_BLOCK, [&] { (void)plan.start(); });
    CHECK(plan.try_start().error() == STEPAF_ERR_WOULD_BLOCK);
    throws<stepaf::timeout_error>(STEPAF_ERR_TIMEOUT, [&] { two[0].wait(0us); });
    CHECK(two[0] && !two[0].test() && two[0].try_test().error() == STEPAF_INPROGRESS);
    throws<stepaf::timeout_error>(STEPAF_ERR_TIMEOUT, [&] { stepaf::wait_any(two, 0us); });
    test_polls(ctx, plan, two[0]);
    ctx.barrier(STEPAF_GROUP_WORLD); /* the FFN rank answers from here on */
    for (int i = 0; i < 2; i++) {
        auto ended = stepaf::wait_any(two);
        CHECK(ended.status == STEPAF_OK && !two[ended.index]);
        CHECK(ended.ref.tensor(0).bytes == (ended.index == 0 ? 16 : N * sizeof(float)));
    }
    throws<stepaf::error>(STEPAF_ERR_STATE, [&] { stepaf::wait_any(two); });

    /* Dropped by this side: the FFN rank never sees it. */
    {
        auto dropped = plan.start(stepaf::start_params().wait());
    }
    ctx.barrier(STEPAF_GROUP_WORLD);
    ctx.barrier(STEPAF_GROUP_WORLD);

    /* Detached: it goes on. */
    auto detached = plan.start(stepaf::start_params().wait()).detach();
    detached.wait();

    /* Dropped by the other side. */
    {
        auto unanswered = plan.start(stepaf::start_params().wait());
        try {
            unanswered.wait();
            CHECK(!"it has to throw");
        } catch (const stepaf::canceled_error &failure) {
            CHECK(failure.peer_rank() == 0);
        }
        CHECK(unanswered);
    }
    CHECK(stepaf_last_error()->status == STEPAF_ERR_CANCELED);
    CHECK(stepaf_last_error()->peer_rank == 0);

    /* Without a plan, to the handler. */
    ctx.push_pull(push, pull).wait();
    ctx.barrier(STEPAF_GROUP_WORLD);
    CHECK(ctx.counters().operations_completed >= 5 && ctx.memory_use().peers == 1);
    CHECK(ctx.try_verdict().error() == STEPAF_ERR_UNSUPPORTED);
    CHECK(ctx.try_verdict(0).error() == STEPAF_ERR_UNSUPPORTED);
    CHECK(ctx.link(0).is_lost == 0 && ctx.transport_name(0)[0] != '\0');

    /* What is ended late is void, not wrong. */
    ctx.reset();
    CHECK(plan.try_destroy().error() == STEPAF_ERR_HANDLE);
    CHECK(std::strstr(stepaf_last_error()->text, "plan handle"));
    CHECK(y.try_end().error() == STEPAF_ERR_HANDLE);
    CHECK(std::strstr(stepaf_last_error()->text, "context handle"));
    plan.reset();
    CHECK(!plan && std::strstr(stepaf_last_error()->text, "context handle"));
    CHECK(stepaf_plan_destroy(nullptr) == STEPAF_ERR_HANDLE);
    y.reset();
    CHECK(!y && std::strstr(stepaf_last_error()->text, "plan handle"));
}

static void twice(stepaf::batch &batch, stepaf::span<float> y)
{
    auto in = batch.tensor(0);
    auto xs = in.as<const float>();
    for (std::size_t i = 0; i < xs.size(); i++)
        y[i] = 2 * xs[i];
    batch.respond_request({{{Y, y.data(), in.bytes}}}).wait();
    CHECK(!batch);
}

static void ffn(stepaf_boot_t *boot)
{
    auto ctx = join(boot, STEPAF_FFN);
    auto y = ctx.alloc(2 * N * sizeof(float));
    auto ys = y.as<float>();
    ctx.commit();

    auto batch = ctx.recv();
    CHECK(batch.query().n_tensors == 1 && batch.query().attention_rank == 0);
    CHECK(batch.answer(0).key == Y && batch.answer(0).max_bytes == N * sizeof(float));
    CHECK(batch.try_tensor(1).error() == STEPAF_ERR_INVALID);
    CHECK(std::strstr(stepaf_last_error()->text, "has no pushed tensor 1"));
    CHECK(batch.try_answer(1).error() == STEPAF_ERR_INVALID);
    CHECK(std::strstr(stepaf_last_error()->text, "expects no answer 1"));
    throws<stepaf::error>(STEPAF_ERR_INVALID, [&] { batch.respond({}); });
    CHECK(batch);
    twice(batch, ys);

    /* The push is confirmed, then its answer sent, then the batch answered. */
    batch = ctx.recv();
    ctx.barrier(STEPAF_GROUP_WORLD);
    batch.confirm();
    ctx.barrier(STEPAF_GROUP_WORLD);
    for (std::size_t i = 0; i < N; i++)
        ys[i] = 3 * batch.tensor(0).as<const float>()[i];
    stepaf::tensor thrice = {Y, y.data(), N * sizeof(float)};
    throws<stepaf::error>(STEPAF_ERR_INVALID, [&] { batch.respond_tensor(1, thrice); });
    batch.respond_tensor(0, thrice);
    throws<stepaf::error>(STEPAF_ERR_STATE, [&] { batch.respond_tensor(0, thrice); });
    CHECK(batch);
    ctx.barrier(STEPAF_GROUP_WORLD);
    batch.respond({{thrice}});
    throws<stepaf::error>(STEPAF_ERR_HANDLE, [&] { batch.confirm(); });

    /* Two of one worker, by rows. */
    ctx.barrier(STEPAF_GROUP_WORLD);
    stepaf::batch both[2];
    int n = 0;
    while (n < 2) {
        both[n] = ctx.recv();
        n++;
    }
    stepaf::tensor rows[] = {stepaf::make_tensor(Y, ys)};
    stepaf_status_t results[2];
    stepaf::respond_many(both, rows, {}, results);
    CHECK(results[0] == STEPAF_OK && results[1] == STEPAF_OK && !both[0] && !both[1]);
    CHECK(stepaf::try_respond_many(both, rows, {}, {results, 1}).error() == STEPAF_ERR_INVALID);
    throws<stepaf::error>(STEPAF_ERR_INVALID,
                          [&] { (void)ctx.recv(STEPAF_FROM_ANY, both, 0us, 77); });
    says_by_itself<stepaf::error>(STEPAF_ERR_INVALID, [&] {
        stepaf::respond_many(both, rows, {}, {results, 1});
    });

    /* What was canceled does not come. */
    ctx.barrier(STEPAF_GROUP_WORLD);
    throws<stepaf::timeout_error>(STEPAF_ERR_TIMEOUT, [&] { (void)ctx.recv(0us); });
    ctx.barrier(STEPAF_GROUP_WORLD);

    CHECK(ctx.recv(STEPAF_FROM_EACH, both) == 1);
    twice(both[0], ys);
    {
        auto dropped = ctx.recv();
    }
    {
        stepaf::batch none(reinterpret_cast<stepaf_batch_h>(&ctx));
        CHECK(ctx.try_key_withdraw(99).error() == STEPAF_ERR_KEY);
    }
    CHECK(stepaf_last_error()->status == STEPAF_ERR_KEY);

    int handled = 0;
    auto handler = [&](stepaf::batch one) noexcept {
        twice(one, ys);
        handled++;
    };
    ctx.set_handler(handler);
    while (handled == 0)
        ctx.progress();
    ctx.clear_handler();
    ctx.barrier(STEPAF_GROUP_WORLD);
}

int main()
{
    test_spans();
    return run_pair(attention, ffn);
}
