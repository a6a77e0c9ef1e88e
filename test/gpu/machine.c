/* SPDX-License-Identifier: Apache-2.0 */
/* A real GPU, for tests of test/mpi. --gpus N: skip where there are fewer. */
#include "mpi/machine.h"
#include "gpu/exchange.h"

static cudaStream_t stream, copies;
static cudaGraphExec_t graph;

bool machine_begin(struct hs_job *job)
{
    job->noisy = true;
    if (!gx_device(job))
        return false;
    stream = gx_stream();
    copies = gx_stream();
    return stream != NULL && copies != NULL;
}

void machine_end(struct hs_job *job)
{
    if (graph != NULL)
        GX_CUDA(cudaGraphExecDestroy(graph));
    graph = NULL;
    hs_close(job);
}

stepaf_stream_t machine_stream(void)
{
    return stream;
}

bool machine_pass(void)
{
    return gx_sync_stream(stream, "the stream");
}

bool machine_is_busy(void)
{
    return cudaStreamQuery(stream) == cudaErrorNotReady;
}

/* Whatever the other stream waits for. */
static bool copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return GX_CUDA(cudaMemcpyAsync(to, from, bytes, kind, copies)) &&
           gx_sync_stream(copies, "a copy");
}

bool machine_write(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes, cudaMemcpyHostToDevice);
}

bool machine_read(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes, cudaMemcpyDeviceToHost);
}

int machine_pieces(void)
{
    return 0;
}

bool machine_wipe(void *at, size_t bytes)
{
    return GX_CUDA(cudaMemsetAsync(at, HS_POISON, bytes, stream));
}

bool machine_capture(bool begins)
{
    cudaGraph_t captured = NULL;

    if (begins)
        return GX_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    bool is_right = GX_CUDA(cudaStreamEndCapture(stream, &captured)) &&
                    GX_CUDA(cudaGraphInstantiate(&graph, captured, 0));
    if (captured != NULL)
        GX_CUDA(cudaGraphDestroy(captured));
    return is_right;
}

bool machine_replay(void)
{
    return GX_CUDA(cudaGraphLaunch(graph, stream));
}
