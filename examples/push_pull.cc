/* SPDX-License-Identifier: Apache-2.0 */
/* push_pull.c in C++: an attention rank pushes x and pulls y; an FFN rank computes y = 2 x. */
#include <iostream>

#include <stepaf/mpi.hpp>
#include <stepaf/stepaf.hpp>

enum { X = 1, Y = 2, N = 1024, BYTES = N * sizeof(float) }; /* X and Y are keys */

static void serve(stepaf::context &ctx, stepaf::span<float> y)
{
    stepaf::batch batch = ctx.recv();
    auto x = batch.tensor(0).as<const float>(); /* the receive buffer itself */
    for (int i = 0; i < N; i++)
        y[i] = 2 * x[i];
    stepaf::tensor answer = stepaf::make_tensor(Y, y);
    batch.respond_request({&answer, 1}).wait(); /* also releases the batch */
}

static void run()
{
    stepaf::context ctx = stepaf::init_mpi(MPI_COMM_WORLD); /* roles: from STEPAF_SPLIT here */
    ctx.key_declare(X, STEPAF_PUSH, BYTES);
    ctx.key_declare(Y, STEPAF_PULL, BYTES);
    stepaf::memory memory = ctx.alloc(2 * BYTES);
    auto x = memory.as<float>().subspan(0, N), y = memory.as<float>().subspan(N, N);
    ctx.commit(); /* on all ranks: exchanges addresses, once */
    if (ctx.role() == STEPAF_ATTENTION) {
        stepaf::tensor push = stepaf::make_tensor(X, x), pull = stepaf::make_tensor(Y, y);
        x[7] = 21;
        stepaf::request request = ctx.push_pull({&push, 1}, {&pull, 1}); /* waits for no peer */
        request.wait();
        std::cout << y[7] << std::endl;
    } else {
        serve(ctx, y);
    }
}

int main(int argc, char **argv)
{
    int failed = 0;
    MPI_Init(&argc, &argv);
    try {
        run();
    } catch (const stepaf::error &failure) {
        std::cerr << stepaf_status_name(failure.status()) << ": " << failure.what() << std::endl;
        failed = 1;
    }
    MPI_Finalize();
    return failed;
}
