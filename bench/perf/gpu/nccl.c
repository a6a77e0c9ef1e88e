/* SPDX-License-Identifier: Apache-2.0 */
#include "perf/gpu/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nccl.h>

#include "perf/fail.h"

struct perf_gpu_nccl {
    struct perf_gpu *gpu;
    const struct perf_case *c;
    const struct perf_buffers *buffers;
    int fused; /* an attention rank sends and receives in one group */
    int n_comms;
    ncclComm_t comms[PERF_GPU_STREAMS];
};

static int nccl_fail(ncclResult_t result, const char *call)
{
    const char *detail = ncclGetLastError(NULL);

    return perf_fail("%s: %s%s%.200s", call, ncclGetErrorString(result),
                     detail != NULL && detail[0] != '\0' ? ": " : "", detail != NULL ? detail : "");
}

/* Rank 0's ids of all communicators, for all ranks. */
static int share_ids(struct perf_gpu *gpu, int n, ncclUniqueId *ids)
{
    int first = gpu->place->rank == 0;
    int rc = 0;
    size_t *offsets;
    void *all;

    for (int i = 0; i < n && first && rc == 0; i++) {
        ncclResult_t result = ncclGetUniqueId(&ids[i]);

        if (result != ncclSuccess)
            rc = nccl_fail(result, "ncclGetUniqueId");
    }
    if (perf_job_agree(gpu->job, rc) != 0 ||
        perf_job_gather(gpu->job, ids, first ? (size_t)n * sizeof(*ids) : 0, &all, &offsets) != 0)
        return -1;
    memcpy(ids, all, (size_t)n * sizeof(*ids));
    free(all);
    free(offsets);
    return 0;
}

/* All ranks meet in each communicator in turn. */
static int join(struct perf_gpu_nccl *nccl, int n, const ncclUniqueId *ids)
{
    const struct perf_place *place = nccl->gpu->place;
    ncclResult_t result = ncclSuccess;

    perf_gpu_guard(nccl->gpu, "ncclCommInitRank");
    for (; nccl->n_comms < n && result == ncclSuccess; nccl->n_comms += result == ncclSuccess)
        result = ncclCommInitRank(&nccl->comms[nccl->n_comms], place->size, ids[nccl->n_comms],
                                  place->rank);
    perf_gpu_unguard();
    return result == ncclSuccess ? 0 : nccl_fail(result, "ncclCommInitRank");
}

int perf_gpu_nccl_open(struct perf_gpu *gpu, const struct perf_case *c,
                       const struct perf_buffers *buffers, struct perf_gpu_nccl **nccl_p)
{
    struct perf_gpu_nccl *nccl = calloc(1, sizeof(*nccl));
    ncclUniqueId ids[PERF_GPU_STREAMS];

    memset(ids, 0, sizeof(ids));
    if (perf_job_agree(gpu->job, nccl != NULL ? 0 : perf_fail("out of memory")) != 0 ||
        share_ids(gpu, gpu->n_streams, ids) != 0) {
        free(nccl);
        return -1;
    }
    nccl->gpu = gpu;
    nccl->c = c;
    nccl->buffers = buffers;
    nccl->fused = gpu->options->baseline_nccl == PERF_NCCL_FUSED;
    if (perf_job_agree(gpu->job, join(nccl, gpu->n_streams, ids)) != 0) {
        perf_gpu_nccl_close(nccl, 0);
        return -1;
    }
    *nccl_p = nccl;
    return 0;
}

void perf_gpu_nccl_close(struct perf_gpu_nccl *nccl, int all_well)
{
    if (nccl == NULL)
        return;
    for (int i = 0; i < nccl->n_comms; i++)
        (void)(all_well ? ncclCommDestroy : ncclCommAbort)(nccl->comms[i]);
    free(nccl);
}

const char *perf_gpu_nccl_version(void)
{
    static char text[32];
    int version = 0;

    (void)ncclGetVersion(&version);
    snprintf(text, sizeof(text), "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return text;
}

/* What an attention rank sends to all FFN ranks, or an FFN rank receives from all attention
 * ranks. */
static ncclResult_t add_pushes(const struct perf_gpu_nccl *nccl, unsigned m, cudaStream_t stream)
{
    const struct perf_case *c = nccl->c;
    const struct perf_place *place = nccl->gpu->place;
    int attention = place->role == STEPAF_ATTENTION;
    ncclResult_t result = ncclSuccess;

    for (int peer = 0; peer < (attention ? c->ffn : c->attn); peer++) {
        for (int t = 0; t < c->n_push && result == ncclSuccess; t++) {
            size_t bytes = c->push[t].bytes;

            if (attention)
                result = ncclSend(perf_buffers_push(nccl->buffers, m, t), bytes, ncclUint8,
                                  place->ffn_world[peer], nccl->comms[m], stream);
            else
                result =
                    ncclRecv(perf_buffers_recv(nccl->buffers, m, t) +
                                 (size_t)peer * nccl->buffers->push_stride[t],
                             bytes, ncclUint8, place->attn_world[peer], nccl->comms[m], stream);
        }
    }
    return result;
}

static ncclResult_t add_pulls(const struct perf_gpu_nccl *nccl, unsigned m, cudaStream_t stream)
{
    const struct perf_case *c = nccl->c;
    const struct perf_place *place = nccl->gpu->place;
    int attention = place->role == STEPAF_ATTENTION;
    ncclResult_t result = ncclSuccess;

    for (int peer = 0; peer < (attention ? c->ffn : c->attn) && result == ncclSuccess; peer++) {
        if (attention)
            result = ncclRecv(perf_buffers_pull(nccl->buffers, m, peer), c->pull.bytes, ncclUint8,
                              place->ffn_world[peer], nccl->comms[m], stream);
        else
            result = ncclSend(perf_gpu_answer(nccl->buffers, peer, m), c->pull.bytes, ncclUint8,
                              place->attn_world[peer], nccl->comms[m], stream);
    }
    return result;
}

/* Make a group of what @a first and @a second (or nothing) add. The group must be ended in any
 * case. */
typedef ncclResult_t (*add_t)(const struct perf_gpu_nccl *nccl, unsigned m, cudaStream_t stream);
static ncclResult_t group(const struct perf_gpu_nccl *nccl, unsigned m, cudaStream_t stream,
                          add_t first, add_t second)
{
    ncclResult_t result = ncclGroupStart();
    ncclResult_t end;

    if (result != ncclSuccess)
        return result;
    result = first(nccl, m, stream);
    if (result == ncclSuccess && second != NULL)
        result = second(nccl, m, stream);
    end = ncclGroupEnd();
    return result != ncclSuccess ? result : end;
}

int perf_gpu_nccl_enqueue(void *self, unsigned m, uint64_t ops, cudaStream_t stream)
{
    const struct perf_gpu_nccl *nccl = self;
    int attention = nccl->gpu->place->role == STEPAF_ATTENTION;
    int back = !perf_gpu_one_way(nccl->gpu);
    int together = nccl->fused && attention && back;

    for (uint64_t i = 0; i < ops; i++) {
        ncclResult_t result = group(nccl, m, stream, add_pushes, together ? add_pulls : NULL);

        if (result == ncclSuccess && back && !together)
            result = group(nccl, m, stream, add_pulls, NULL);
        if (result != ncclSuccess)
            return nccl_fail(result, "ncclGroupEnd");
    }
    return 0;
}
