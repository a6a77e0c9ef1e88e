/* SPDX-License-Identifier: Apache-2.0 */
/* Contenders on a GPU: how their operations are enqueued, captured, replayed and timed.
 *
 * A *unit* is timed as a whole: on the stream of each microbatch some operations between two
 * events, enqueued one by one or as one replay of a graph that was captured from the same calls.
 * A *chunk* is a sequence of units. The streams of attention ranks are held until all ranks have
 * enqueued the first units, so that the host's speed does not matter where a unit is short. The
 * first unit of a chunk is not timed. */
#ifndef PERF_GPU_PLAY_H
#define PERF_GPU_PLAY_H

#include "perf/gpu/device.h"

enum { PERF_GPU_UNITS = 33 }; /* of a chunk, at most, including the one that is not timed */

/* Enqueue this rank's part of @a ops operations of microbatch @a m; -1 with a sentence. */
typedef int (*perf_gpu_enqueue_t)(void *self, unsigned m, uint64_t ops, cudaStream_t stream);

struct perf_gpu_side {
    void *self;
    perf_gpu_enqueue_t enqueue; /* NULL: there is no such contender */
    int (*status)(void *self);  /* NULL, or whether completed operations succeeded */
    stepaf_context_h ctx;       /* advances in waits; NULL: none */
    cudaGraphExec_t graphs[PERF_GPU_STREAMS];
    int has_graphs;
};

/* The times of a chunk on this rank. */
struct perf_gpu_chunk {
    int n;                                             /* timed units of each stream */
    double unit_us[PERF_GPU_STREAMS][PERF_GPU_UNITS];  /* by stream */
    double host_us[PERF_GPU_UNITS * PERF_GPU_STREAMS]; /* of the calls that enqueued a unit */
    int n_host;
    double
        elapsed_us; /* all timed units of all streams, from the first's begin to the last's end */
    int lasted;     /* the load ran all the while, or there was none */
};

struct perf_gpu_player {
    struct perf_gpu *gpu;
    uint64_t unit_ops;                                   /* of each stream */
    cudaEvent_t marks[PERF_GPU_STREAMS][PERF_GPU_UNITS]; /* after each unit */
};

/* Make the events. -1 with a sentence. */
int perf_gpu_player_open(struct perf_gpu *gpu, uint64_t unit_ops, struct perf_gpu_player *player_p);
void perf_gpu_player_close(struct perf_gpu_player *player);

/* Run one unit without a hold, so that first-use connecting and loading is done afterwards.
 * Collective; -1 with a sentence on every rank. */
int perf_gpu_play_first(struct perf_gpu_player *player, struct perf_gpu_side *side);

/* Capture a unit for each stream. Collective; -1 with a sentence on every rank. */
int perf_gpu_play_capture(struct perf_gpu_player *player, struct perf_gpu_side *side);
void perf_gpu_side_close(struct perf_gpu_side *side);

/* Run a chunk of @a units units, 2 at least, beside a load of @a load_us (0.0: none). Collective;
 * -1 with a sentence on every rank. */
int perf_gpu_play(struct perf_gpu_player *player, struct perf_gpu_side *side, int units,
                  double load_us, struct perf_gpu_chunk *chunk_p);

#endif
