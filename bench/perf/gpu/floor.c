/* SPDX-License-Identifier: Apache-2.0 */
#include "perf/gpu/floor.h"

#include <stdlib.h>
#include <string.h>

#include "perf/fail.h"

enum { PAGE = 4096 };

static void lay_out(struct perf_gpu_floor *floor)
{
    const struct perf_case *c = floor->c;

    for (int t = 0; t < c->n_push; t++) {
        floor->offset[t] = floor->microbatch;
        floor->microbatch += (c->push[t].bytes + PAGE - 1) / PAGE * PAGE;
    }
    floor->share = floor->microbatch * c->microbatches;
}

static int make_memory(struct perf_gpu_floor *floor, cudaIpcMemHandle_t *handle_p)
{
    const struct perf_place *place = floor->gpu->place;
    void *memory;

    if (!place->one_node)
        return perf_fail("the floor needs all ranks on one node");
    if (place->role != STEPAF_FFN)
        return 0;
    if (perf_gpu_try(cudaMalloc(&memory, floor->share * (size_t)floor->c->attn)) != 0)
        return -1;
    floor->own = memory;
    return perf_gpu_try(cudaIpcGetMemHandle(handle_p, memory));
}

static int map_memory(struct perf_gpu_floor *floor, const cudaIpcMemHandle_t *handles)
{
    const struct perf_place *place = floor->gpu->place;

    if (place->role != STEPAF_ATTENTION)
        return 0;
    floor->peers = calloc((size_t)place->ffn, sizeof(*floor->peers));
    if (floor->peers == NULL)
        return perf_fail("out of memory");
    for (int f = 0; f < place->ffn; f++) {
        void *memory;

        if (perf_gpu_try(cudaIpcOpenMemHandle(&memory, handles[place->ffn_world[f]],
                                              cudaIpcMemLazyEnablePeerAccess)) != 0)
            return -1;
        floor->peers[f] = memory;
    }
    return 0;
}

int perf_gpu_floor_open(struct perf_gpu *gpu, const struct perf_case *c,
                        const struct perf_buffers *buffers, struct perf_gpu_floor *floor_p)
{
    cudaIpcMemHandle_t handle;
    size_t *offsets;
    void *all;
    int rc;

    memset(&handle, 0, sizeof(handle));
    *floor_p = (struct perf_gpu_floor){.gpu = gpu, .c = c, .buffers = buffers};
    lay_out(floor_p);
    if (perf_job_agree(gpu->job, make_memory(floor_p, &handle)) != 0 ||
        perf_job_gather(gpu->job, &handle, sizeof(handle), &all, &offsets) != 0)
        return -1;
    rc = map_memory(floor_p, all);
    free(all);
    free(offsets);
    return perf_job_agree(gpu->job, rc);
}

void perf_gpu_floor_close(struct perf_gpu_floor *floor)
{
    if (floor->gpu == NULL)
        return;
    for (int f = 0; floor->peers != NULL && f < floor->gpu->place->ffn; f++) {
        if (floor->peers[f] != NULL)
            cudaIpcCloseMemHandle(floor->peers[f]);
    }
    (void)perf_job_agree(floor->gpu->job, 0);
    cudaFree(floor->own);
    free(floor->peers);
    memset(floor, 0, sizeof(*floor));
}

int perf_gpu_floor_enqueue(void *self, unsigned m, uint64_t ops, cudaStream_t stream)
{
    const struct perf_gpu_floor *floor = self;
    const struct perf_place *place = floor->gpu->place;

    for (uint64_t i = 0; i < ops && place->role == STEPAF_ATTENTION; i++) {
        for (int n = 0; n < place->ffn; n++) {
            /* Attention ranks begin with different FFN ranks. */
            int f = (place->index + n) % place->ffn;
            char *to =
                floor->peers[f] + (size_t)place->index * floor->share + m * floor->microbatch;

            for (int t = 0; t < floor->c->n_push; t++) {
                if (perf_gpu_try(cudaMemcpyAsync(
                        to + floor->offset[t], perf_buffers_push(floor->buffers, m, t),
                        floor->c->push[t].bytes, cudaMemcpyDefault, stream)) != 0)
                    return -1;
            }
        }
    }
    return 0;
}
