/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/fail.h"
#include "perf/gpu/nccl.h"
#include "perf/gpu/row_state.h"
#include "perf/progress.h"

/* Sources get bytes that differ, so that no copy is of one value alone. */
static int fill_memory(struct perf_gpu_row *row)
{
    const struct perf_buffers *buffers = &row->lib.buffers;
    struct perf_gpu_pieces pieces = {.depth = 1, .n = 1};
    cudaStream_t stream = row->gpu->streams[0];
    void *turn;
    int rc;

    if (perf_gpu_try(cudaMalloc(&turn, sizeof(uint64_t))) != 0)
        return -1;
    pieces.turn = turn;
    pieces.pieces[0] = (struct perf_gpu_piece){(uint8_t *)buffers->base, 0, buffers->bytes,
                                               (uint64_t)row->gpu->place->rank + 1};
    rc = perf_gpu_try(cudaMemsetAsync(turn, 0, sizeof(uint64_t), stream));
    if (rc == 0)
        rc = perf_gpu_try(perf_gpu_launch_fill(&pieces, stream));
    if (rc == 0)
        rc = perf_gpu_drain(row->gpu, stream, row->lib.ctx, "filling the tensors");
    cudaFree(turn);
    return rc;
}

/* In words: GPUs and who copies, and what connects nodes. */
static int describe_links(struct perf_gpu_row *row)
{
    const char *engine = getenv("STEPAF_CUDA_ENGINE");
    char links[PERF_LINKS_MAX];

    if (perf_links_learn(row->gpu->job, row->lib.ctx, links) != 0)
        return -1;
    snprintf(row->transport, sizeof(row->transport), "cuda;%.16s%s%.64s",
             engine != NULL && engine[0] != '\0' ? engine : "auto",
             row->gpu->place->one_node ? "" : " + ", row->gpu->place->one_node ? "" : links);
    return 0;
}

static int open_contenders(struct perf_gpu_row *row)
{
    struct perf_gpu *gpu = row->gpu;

    if (perf_gpu_lib_open(gpu, &row->c, &row->lib) != 0 || describe_links(row) != 0 ||
        perf_job_agree(gpu->job, fill_memory(row)) != 0)
        return -1;
    row->sides[PERF_OURS] = (struct perf_gpu_side){.self = &row->lib,
                                                   .enqueue = perf_gpu_lib_enqueue,
                                                   .status = perf_gpu_lib_status,
                                                   .ctx = row->lib.ctx};
    if (gpu->options->check) {
        row->checked = row->sides[PERF_OURS];
        row->checked.enqueue = perf_gpu_lib_enqueue_checked;
    }
    if (gpu->options->baseline_nccl != PERF_NCCL_NONE) {
        if (perf_gpu_nccl_open(gpu, &row->c, &row->lib.buffers, &row->nccl) != 0)
            return -1;
        row->sides[PERF_NCCL] = (struct perf_gpu_side){
            .self = row->nccl, .enqueue = perf_gpu_nccl_enqueue, .ctx = row->lib.ctx};
    }
    /* A round trip's floor would be another library: of one way it is the copies alone. On several
     * streams an engine takes these one stream after the other, which would be no comparison. */
    if (!gpu->options->no_floor && perf_gpu_one_way(gpu) && row->c.microbatches == 1) {
        if (perf_gpu_floor_open(gpu, &row->c, &row->lib.buffers, &row->floor) != 0)
            return -1;
        row->sides[PERF_FLOOR_LOOP] = (struct perf_gpu_side){
            .self = &row->floor, .enqueue = perf_gpu_floor_enqueue, .ctx = row->lib.ctx};
    }
    return 0;
}

static void close_contenders(struct perf_gpu_row *row, int all_well)
{
    perf_gpu_guard(row->gpu, "the end of a row");
    for (int who = 0; who < PERF_WHO_LAST; who++) {
        perf_gpu_side_close(&row->sides[who]);
        free(row->samples[who].unit);
        free(row->samples[who].host);
    }
    perf_gpu_side_close(&row->checked);
    perf_gpu_nccl_close(row->nccl, all_well);
    perf_gpu_player_close(&row->player);
    perf_gpu_floor_close(&row->floor);
    perf_gpu_lib_close(&row->lib);
    perf_gpu_unguard();
}

int perf_gpu_row_run(struct perf_gpu *gpu, int index, int loaded, struct perf_result *result_p)
{
    struct perf_gpu_row row = {.gpu = gpu, .loaded = loaded};
    int rc;

    memset(result_p, 0, sizeof(*result_p));
    result_p->index = index;
    perf_case_make(gpu->options, index, gpu->place->attn, gpu->place->ffn, &row.c);
    rc = open_contenders(&row);
    if (rc == 0)
        rc = perf_gpu_row_measure(&row, index);
    if (rc == 0)
        rc = perf_gpu_row_merge(&row, result_p);
    perf_progress_clear();
    close_contenders(&row, rc == 0);
    return rc;
}
