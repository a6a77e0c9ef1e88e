/* SPDX-License-Identifier: Apache-2.0 */
#include "perf/gpu/play.h"

#include <string.h>

#include "perf/clock.h"
#include "perf/fail.h"

/* Operations of a stream that may be enqueued behind a hold: CUDA accepts some 1000 launches per
 * stream, then the call waits for the GPU, which waits for the host. Longer units need no hold. */
enum { HELD_OPS = 64 };

int perf_gpu_player_open(struct perf_gpu *gpu, uint64_t unit_ops, struct perf_gpu_player *player_p)
{
    memset(player_p, 0, sizeof(*player_p));
    player_p->gpu = gpu;
    player_p->unit_ops = unit_ops;
    for (int s = 0; s < gpu->n_streams; s++) {
        for (int i = 0; i < PERF_GPU_UNITS; i++) {
            if (perf_gpu_try(cudaEventCreate(&player_p->marks[s][i])) != 0)
                return -1;
        }
    }
    return 0;
}

void perf_gpu_player_close(struct perf_gpu_player *player)
{
    for (int s = 0; player->gpu != NULL && s < player->gpu->n_streams; s++) {
        for (int i = 0; i < PERF_GPU_UNITS; i++) {
            if (player->marks[s][i] != NULL)
                cudaEventDestroy(player->marks[s][i]);
        }
    }
}

static int drain_all(struct perf_gpu *gpu, stepaf_context_h ctx, const char *what)
{
    for (int s = 0; s < gpu->n_streams; s++) {
        if (perf_gpu_drain(gpu, gpu->streams[s], ctx, what) != 0)
            return -1;
    }
    return 0;
}

/* A stream continues even after a failed operation. */
static int status_of(struct perf_gpu_side *side)
{
    return side->status != NULL ? side->status(side->self) : 0;
}

int perf_gpu_play_first(struct perf_gpu_player *player, struct perf_gpu_side *side)
{
    struct perf_gpu *gpu = player->gpu;
    int rc = 0;

    perf_gpu_guard(gpu, "enqueueing the first operations");
    for (int s = 0; s < gpu->n_streams && rc == 0; s++)
        rc = side->enqueue(side->self, (unsigned)s, player->unit_ops, gpu->streams[s]);
    perf_gpu_unguard();
    if (perf_job_agree(gpu->job, rc) != 0)
        return -1;
    rc = drain_all(gpu, side->ctx, "the first operations");
    if (rc == 0)
        rc = status_of(side);
    return perf_job_end_block(gpu->job, side->ctx, rc);
}

static int capture(struct perf_gpu_player *player, struct perf_gpu_side *side, int s)
{
    cudaStream_t stream = player->gpu->streams[s];
    cudaGraph_t graph = NULL;
    cudaError_t error;
    int rc;

    if (perf_gpu_try(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)) != 0)
        return -1;
    rc = side->enqueue(side->self, (unsigned)s, player->unit_ops, stream);
    error = cudaStreamEndCapture(stream, &graph);
    if (rc == 0)
        rc = perf_gpu_verdict(error, "cudaStreamEndCapture");
    if (rc == 0)
        rc = perf_gpu_try(cudaGraphInstantiate(&side->graphs[s], graph, 0));
    if (graph != NULL)
        cudaGraphDestroy(graph);
    if (rc == 0)
        rc = perf_gpu_try(cudaGraphUpload(side->graphs[s], stream));
    return rc;
}

int perf_gpu_play_capture(struct perf_gpu_player *player, struct perf_gpu_side *side)
{
    struct perf_gpu *gpu = player->gpu;
    int rc = 0;

    perf_gpu_guard(gpu, "capturing a graph");
    for (int s = 0; s < gpu->n_streams && rc == 0; s++)
        rc = capture(player, side, s);
    perf_gpu_unguard();
    if (rc == 0)
        rc = drain_all(gpu, side->ctx, "the upload of a graph");
    side->has_graphs = 1;
    return perf_job_agree(gpu->job, rc);
}

void perf_gpu_side_close(struct perf_gpu_side *side)
{
    for (int s = 0; s < PERF_GPU_STREAMS; s++) {
        if (side->graphs[s] != NULL)
            cudaGraphExecDestroy(side->graphs[s]);
    }
}

static int enqueue_unit(struct perf_gpu_player *player, struct perf_gpu_side *side, int s)
{
    cudaStream_t stream = player->gpu->streams[s];

    if (!side->has_graphs)
        return side->enqueue(side->self, (unsigned)s, player->unit_ops, stream);
    return perf_gpu_try(cudaGraphLaunch(side->graphs[s], stream));
}

/* Enqueue units @a from to @a to (exclusive) of all streams, with a mark after each. */
static int enqueue(struct perf_gpu_player *player, struct perf_gpu_side *side, int from, int to,
                   struct perf_gpu_chunk *chunk)
{
    struct perf_gpu *gpu = player->gpu;

    for (int u = from; u < to; u++) {
        for (int s = 0; s < gpu->n_streams; s++) {
            uint64_t start = perf_ticks();

            if (enqueue_unit(player, side, s) != 0)
                return -1;
            chunk->host_us[chunk->n_host++] =
                (double)(perf_ticks() - start) * perf_clock_ns_per_tick / 1e3;
            if (perf_gpu_try(cudaEventRecord(player->marks[s][u], gpu->streams[s])) != 0)
                return -1;
        }
    }
    return 0;
}

static int read_time(cudaEvent_t from, cudaEvent_t to, double *us_p)
{
    float ms;

    if (perf_gpu_try(cudaEventElapsedTime(&ms, from, to)) != 0)
        return -1;
    *us_p = (double)ms * 1e3;
    return 0;
}

/* Call after all marks have been passed. The streams begin together, and the slowest counts. */
static int read_times(struct perf_gpu_player *player, int units, struct perf_gpu_chunk *chunk)
{
    chunk->n = units - 1;
    for (int s = 0; s < player->gpu->n_streams; s++) {
        double elapsed_us;

        for (int u = 1; u < units; u++) {
            if (read_time(player->marks[s][u - 1], player->marks[s][u],
                          &chunk->unit_us[s][u - 1]) != 0)
                return -1;
        }
        if (read_time(player->marks[s][0], player->marks[s][units - 1], &elapsed_us) != 0)
            return -1;
        if (elapsed_us > chunk->elapsed_us)
            chunk->elapsed_us = elapsed_us;
    }
    return 0;
}

/* The first units are behind the hold; all ranks reach this point whatever has happened. */
static int begin(struct perf_gpu_player *player, struct perf_gpu_side *side, int held,
                 double load_us, struct perf_gpu_chunk *chunk)
{
    struct perf_gpu *gpu = player->gpu;
    int attention = gpu->place->role == STEPAF_ATTENTION;
    int rc = load_us > 0.0 ? perf_gpu_load_begin(gpu, load_us) : 0;

    if (rc == 0 && attention && held > 0)
        rc = perf_gpu_hold(gpu);
    if (rc == 0)
        rc = enqueue(player, side, 0, held, chunk);
    rc = perf_job_agree(gpu->job, rc);
    perf_gpu_release(gpu);
    return rc;
}

int perf_gpu_play(struct perf_gpu_player *player, struct perf_gpu_side *side, int units,
                  double load_us, struct perf_gpu_chunk *chunk_p)
{
    struct perf_gpu *gpu = player->gpu;
    int held = player->unit_ops <= HELD_OPS ? 1 + (int)(HELD_OPS / player->unit_ops) : 0;
    double shortest;
    int rc;

    memset(chunk_p, 0, sizeof(*chunk_p));
    chunk_p->lasted = 1;
    if (held > units)
        held = units;
    perf_gpu_guard(gpu, "enqueueing operations");
    rc = begin(player, side, held, load_us, chunk_p);
    if (rc == 0)
        rc = enqueue(player, side, held, units, chunk_p);
    perf_gpu_unguard();
    for (int s = 0; s < gpu->n_streams && rc == 0; s++)
        rc = perf_gpu_wait(gpu, player->marks[s][units - 1], side->ctx, "a block of operations");
    if (load_us > 0.0 && perf_gpu_load_end(gpu, &chunk_p->lasted) != 0)
        rc = -1;
    if (rc == 0)
        rc = status_of(side);
    if (rc == 0)
        rc = read_times(player, units, chunk_p);
    if (perf_job_end_block(gpu->job, side->ctx, rc) != 0)
        return -1;
    if (load_us > 0.0) {
        if (perf_job_max(gpu->job, !chunk_p->lasted, &shortest) != 0)
            return -1;
        chunk_p->lasted = shortest == 0.0;
    }
    return 0;
}
