/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/fail.h"
#include "perf/gpu/nccl.h"
#include "perf/gpu/row_state.h"
#include "perf/progress.h"

/* Give sources different bytes, so that no copy is of one value alone. */
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

/* Of this rank's links, as bits. */
static int find_ways(const struct perf_gpu_row *row, unsigned *ways_p)
{
    static const char *const names[PERF_GPU_WAYS] = {"cuda_ipc", "cuda_host", "cuda_proxy"};
    const struct perf_place *place = row->gpu->place;
    int n = place->role == STEPAF_ATTENTION ? place->ffn : place->attn;

    *ways_p = 0;
    for (int i = 0; i < n; i++) {
        stepaf_link_info_t link = {.size = sizeof(link)};
        stepaf_status_t status = stepaf_link_query(row->lib.ctx, i, &link);

        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_link_query");
        for (int way = 0; way < PERF_GPU_WAYS; way++) {
            if (strcmp(link.streams, names[way]) == 0)
                *ways_p |= 1u << way;
        }
    }
    return 0;
}

/* Those of all ranks. */
static int learn_ways(struct perf_gpu_row *row)
{
    unsigned mine;
    size_t *offsets;
    void *all;

    if (perf_job_agree(row->gpu->job, find_ways(row, &mine)) != 0 ||
        perf_job_gather(row->gpu->job, &mine, sizeof(mine), &all, &offsets) != 0)
        return -1;
    for (int r = 0; r < row->gpu->place->size; r++)
        row->ways |= ((const unsigned *)all)[r];
    free(all);
    free(offsets);
    return 0;
}

/* Write in words: GPUs and who copies, which way, and over which links where streams use a
 * proxy. */
static int describe_links(struct perf_gpu_row *row)
{
    static const char *const words[PERF_GPU_WAYS] = {";direct", ";pinned", ";proxy"};
    const char *engine = getenv("STEPAF_CUDA_ENGINE");
    char links[PERF_LINKS_MAX];
    size_t end;

    if (perf_links_learn(row->gpu->job, row->lib.ctx, links) != 0 || learn_ways(row) != 0)
        return -1;
    snprintf(row->transport, sizeof(row->transport), "cuda;%.4s",
             engine != NULL && engine[0] != '\0' ? engine : "auto");
    for (int way = 0; way < PERF_GPU_WAYS; way++) {
        end = strlen(row->transport);
        if (row->ways & 1u << way)
            snprintf(row->transport + end, sizeof(row->transport) - end, "%s", words[way]);
    }
    end = strlen(row->transport);
    if (row->ways & 1u << PERF_GPU_PROXY)
        snprintf(row->transport + end, sizeof(row->transport) - end, " + %.48s", links);
    return 0;
}

/* One way, where GPUs reach each other, the floor is copies alone: on several streams an engine
 * executes the copies one stream after the other, which would be no fair comparison. Otherwise
 * bare kernels, through memory of the kind that the library uses. */
static int open_floor(struct perf_gpu_row *row)
{
    struct perf_gpu *gpu = row->gpu;
    int direct = row->ways == 1u << PERF_GPU_DIRECT;

    if (gpu->options->no_floor || !gpu->place->one_node || row->c.scatter)
        return 0;
    if (perf_gpu_one_way(gpu) && direct) {
        if (row->c.microbatches > 1)
            return 0;
        if (perf_gpu_floor_open(gpu, &row->c, &row->lib.buffers, &row->floor) != 0)
            return -1;
        row->sides[PERF_FLOOR_LOOP] = (struct perf_gpu_side){
            .self = &row->floor, .enqueue = perf_gpu_floor_enqueue, .ctx = row->lib.ctx};
        return 0;
    }
    if (perf_gpu_bare_open(gpu, &row->c, !direct, &row->bare) != 0)
        return -1;
    row->sides[PERF_FLOOR_LOOP] = (struct perf_gpu_side){.self = &row->bare,
                                                         .enqueue = perf_gpu_bare_enqueue,
                                                         .status = perf_gpu_bare_status,
                                                         .ctx = row->lib.ctx};
    return perf_job_agree(gpu->job, !direct && gpu->place->rank == 0
                                        ? perf_gpu_bare_copies(&row->bare, &row->copies_us)
                                        : 0);
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
    return open_floor(row);
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
    perf_gpu_bare_close(&row->bare);
    perf_gpu_wire_close(&row->wire);
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
