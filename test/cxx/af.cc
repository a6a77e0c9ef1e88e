/* SPDX-License-Identifier: Apache-2.0 */
/* af_tensor.hpp between two ranks: what AFTensorWorker and AFTensorServer promise. */
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include <stepaf/af_tensor.hpp>

#include "pair.hpp"

using namespace stepaf::af;

enum : Key { X = 1, ROUTING = 2, Y = 3, Z = 4 };
enum { BYTES = 1024 };

/* As torch's tensors say where they are. */
struct like_torch {
    std::vector<char> &of;
    void *data_ptr() const
    {
        return of.data();
    }
    std::size_t nbytes() const
    {
        return of.size();
    }
};

static stepaf::context join(stepaf_boot_t *boot, stepaf_role_t role)
{
    auto ctx = stepaf::context::init(stepaf::params().role(role), boot);
    for (Key key : {X, ROUTING})
        ctx.key_declare(key, STEPAF_PUSH, BYTES);
    for (Key key : {Y, Z})
        ctx.key_declare(key, STEPAF_PULL, BYTES);
    return ctx;
}

static std::vector<char> buffers[4]; /* outlive the context */

static void attention(stepaf_boot_t *boot)
{
    for (auto &buffer : buffers)
        buffer.resize(BYTES);
    auto ctx = join(boot, STEPAF_ATTENTION);
    stepaf::registration held[4];
    for (int i = 0; i < 4; i++)
        held[i] = ctx.register_memory(buffers[i].data(), BYTES);
    ctx.commit();
    int synced = 0;
    AFTensorWorker worker(
        ctx, [&] { synced++; }, 16);
    std::vector<KeyTensor> push = {{X, like_torch{buffers[0]}},
                                   {ROUTING, {buffers[1].data(), 100}}};
    std::vector<KeyTensor> pull = {{Y, like_torch{buffers[2]}}, {Z, like_torch{buffers[3]}}};

    buffers[0][7] = 'x';
    buffers[1][7] = 'r';
    int handler = worker.ZBatchPushPull(push, pull);
    CHECK(synced == 1);
    std::vector<int> all = worker.GetAllHandlers(handler);
    CHECK(all.size() == 2);
    for (int tensor : all)
        worker.Wait(tensor);
    CHECK(buffers[2][7] == 'x' && buffers[3][7] == 'r');
    worker.Wait(handler);
    CHECK(worker.FetchTrace(handler, 0).answered_ns > 0);

    std::vector<int> again = worker.GetAllHandlers(worker.ZBatchPushPull(push, pull, false));
    worker.Wait(again[1], UINT64_MAX); /* for ever is not at once */

    /* Nobody answers before the barrier. */
    int late = worker.ZBatchPushPull(push, pull, false);
    CHECK(synced == 1);
    for (int waited : {late, worker.GetAllHandlers(late)[1]})
        for (unsigned timeout_ms : {0, 5}) {
            try {
                worker.Wait(waited, timeout_ms);
                CHECK(!"it has to throw");
            } catch (const stepaf::timeout_error &) {
            }
        }
    worker.Barrier(true, true);
    worker.Wait(late);

    /* Only pushed, and the handlers that are kept. */
    int pushed = worker.ZBatchPushPull({{X, {buffers[0].data(), 4}}}, {});
    CHECK(worker.GetAllHandlers(pushed) == std::vector<int>{pushed});
    worker.Wait(pushed);
    for (int wrong : {-1, pushed + 1, handler - 16})
        try {
            worker.Wait(wrong);
            CHECK(!"it has to throw");
        } catch (const stepaf::error &failure) {
            CHECK(failure.status() == STEPAF_ERR_HANDLE);
        }
    worker.Barrier(true, true);
}

/* Answers in another order than expected. */
static void echo(const AFTensorMeta &meta, AFTensorServer *server)
{
    std::memcpy(buffers[2].data(), meta.push_tensors[0].val.data, BYTES);
    std::memcpy(buffers[3].data(), meta.push_tensors[1].val.data, 100);
    server->Response(meta, {{Z, {buffers[3].data(), 100}}, {Y, like_torch{buffers[2]}}}).wait();
}

static void ffn(stepaf_boot_t *boot)
{
    for (auto &buffer : buffers)
        buffer.resize(2 * BYTES);
    buffers[2].resize(BYTES);
    auto ctx = join(boot, STEPAF_FFN);
    AFTensorServer server(ctx);
    auto y = ctx.register_memory(buffers[2].data(), BYTES);
    auto z = ctx.register_memory(buffers[3].data(), BYTES);
    try {
        server.RegisterRecvTensor(like_torch{buffers[0]}, {0}, {X, ROUTING});
        CHECK(!"it has to throw");
    } catch (const stepaf::error &failure) {
        CHECK(failure.status() == STEPAF_ERR_INVALID);
    }
    server.RegisterRecvTensor(like_torch{buffers[0]}, {0, 0}, {ROUTING, X});
    ctx.commit();

    auto metas = server.GetBatch();
    CHECK(metas.size() == 1 && metas[0].sender_rank == 0 && metas[0].pull_tensors.size() == 2);
    const KeyTensors &pushed = metas[0].push_tensors;
    CHECK(pushed.size() == 2 && pushed[1].key == ROUTING && pushed[1].val.bytes == 100);
    CHECK(pushed[1].val.data == buffers[0].data());
    CHECK(pushed[0].val.data == buffers[0].data() + BYTES);
    echo(metas[0], &server);
    try {
        server.Response(metas[0], {});
        CHECK(!"it has to throw");
    } catch (const stepaf::error &failure) {
        CHECK(failure.status() == STEPAF_ERR_HANDLE);
    }
    metas = server.GetBatch();
    std::this_thread::sleep_for(std::chrono::milliseconds(20)); /* it is waited for by now */
    echo(metas[0], &server);

    /* A handle answers, and then one throws. */
    ctx.barrier(STEPAF_GROUP_WORLD);
    int n = 0;
    server.SetRequestHandle([&](const AFTensorMeta &meta, AFTensorServer *self) {
        n++;
        if (!meta.pull_tensors.empty())
            return echo(meta, self);
        self->Response(meta);
        throw std::runtime_error("of the handle");
    });
    std::string said;
    while (said.empty())
        try {
            server.Progress();
        } catch (const std::runtime_error &failure) {
            said = failure.what();
        }
    CHECK(said == "of the handle" && n == 2);
    server.SetRequestHandle({});
    ctx.barrier(STEPAF_GROUP_WORLD);
}

/* A place that nobody has taken has no batch. */
static void attention_with_room(stepaf_boot_t *boot)
{
    buffers[0].resize(BYTES);
    auto ctx = join(boot, STEPAF_ATTENTION);
    auto held = ctx.register_memory(buffers[0].data(), BYTES);
    ctx.commit();
    AFTensorWorker worker(ctx);
    worker.Wait(worker.ZBatchPushPull({{X, {buffers[0].data(), 4}}}, {}));
}

static void ffn_with_room(stepaf_boot_t *boot)
{
    auto ctx = join(boot, STEPAF_FFN);
    ctx.commit();
    AFTensorServer server(ctx);
    CHECK(ctx.n_peers() == 2);
    auto metas = server.GetBatch();
    CHECK(metas.size() == 1 && metas[0].sender_rank == 0);
    server.Response(metas[0]);
}

int main()
{
    if (run_pair(attention, ffn))
        return 1;
    (void)setenv("STEPAF_ROOM_ATTENTION", "1", 1);
    (void)setenv("STEPAF_SECRET", "of the test", 1);
    return run_pair(attention_with_room, ffn_with_room);
}
