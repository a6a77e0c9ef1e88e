/* SPDX-License-Identifier: Apache-2.0 */
/* A program written as for StepMesh: two tensors to every server, a result from each, which is the
 * sum times the server's number + 1. Unlike in StepMesh, which sets up a key at its first use, all
 * keys are declared in advance. */
#include <iostream>

#include <stepaf/af_tensor.hpp>
#include <stepaf/mpi.hpp>

using namespace stepaf::af;

enum : Key { A = 1, B = 2, SUM = 3 };
enum { N = 256, BYTES = N * sizeof(float), LAYERS = 2 };

static void work(stepaf::context &ctx, stepaf::span<float> memory)
{
    AFTensorWorker worker(ctx);
    int servers = ctx.size(STEPAF_GROUP_FFN);
    float *a = memory.data(), *b = a + N, *sums = b + N;
    std::vector<KeyTensor> push = {{A, {a, BYTES}}, {B, {b, BYTES}}}, pull;
    for (int s = 0; s < servers; s++)
        pull.push_back({SUM, {sums + s * N, BYTES}});
    for (int layer = 0; layer < LAYERS; layer++) {
        a[7] = 10;
        b[7] = static_cast<float>(layer);
        worker.Wait(worker.ZBatchPushPull(push, pull));
        for (int s = 0; s < servers; s++)
            std::cout << "layer " << layer << ": server " << s << " made " << sums[s * N + 7]
                      << std::endl;
    }
}

static void serve(stepaf::context &ctx, stepaf::span<float> sum)
{
    AFTensorServer server(ctx);
    float factor = static_cast<float>(ctx.rank(STEPAF_GROUP_FFN) + 1);
    for (int layer = 0; layer < LAYERS; layer++)
        for (const AFTensorMeta &meta : server.GetBatch()) {
            auto a = meta.push_tensors[0].val.as<const float>();
            auto b = meta.push_tensors[1].val.as<const float>();
            for (int i = 0; i < N; i++)
                sum[i] = factor * (a[i] + b[i]);
            server.Response(meta, {{SUM, {sum.data(), BYTES}}}).wait();
        }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    {
        stepaf::context ctx = stepaf::init_mpi(MPI_COMM_WORLD);
        ctx.key_declare(A, STEPAF_PUSH, BYTES);
        ctx.key_declare(B, STEPAF_PUSH, BYTES);
        ctx.key_declare(SUM, STEPAF_PULL, BYTES);
        auto memory = ctx.alloc((2 + ctx.size(STEPAF_GROUP_FFN)) * BYTES);
        ctx.commit();
        if (ctx.role() == STEPAF_ATTENTION)
            work(ctx, memory.as<float>());
        else
            serve(ctx, memory.as<float>());
    }
    return MPI_Finalize();
}
