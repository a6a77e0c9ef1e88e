/* SPDX-License-Identifier: Apache-2.0 */
/* Mailboxes in host memory, for GPUs of one node that do not reach each other. For each such peer
 * the receiver makes a sealed memory file, the peer maps it, and both pin it for their GPUs. The
 * kernels then store and load there as in GPU memory. */
#include <stdlib.h>
#include <sys/mman.h>

#include "gpu/proxy.h"
#include "gpu/stream.h"

bool stepaf_stream_in_host(const struct stepaf_ctx *ctx, uint32_t p)
{
    if (stepaf_peer_proxied(ctx, p) || ctx->env.cuda_mailbox == STEPAF_ENV_CUDA_MAILBOX_gpu)
        return false;
    return ctx->env.cuda_mailbox == STEPAF_ENV_CUDA_MAILBOX_host ||
           stepaf_gpu_facts(ctx->gpu.device)->unshared ||
           (ctx->gpu.unreached && ctx->gpu.unreached[p]);
}

stepaf_status_t stepaf_streams_make_host(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t p = 0; p < ctx->n_peers && !status; p++) {
        struct stepaf_host_mailboxes *host = &streams->host[p];
        if (!host->bytes)
            continue;
        status = stepaf_device_alloc(STEPAF_MEM_HOST, NULL, host->bytes, &host->mem);
        host->made = !status;
        if (!status)
            status =
                stepaf_gpu_pin(ctx->gpu.device, host->mem.base, host->mem.bytes, &host->pinned);
    }
    return status;
}

stepaf_status_t stepaf_streams_map_host(struct stepaf_peer *peer, int fd, uint64_t bytes)
{
    struct stepaf_ctx *ctx = peer->ctx;
    struct stepaf_host_mailboxes *host = &ctx->gpu.streams->host[peer->index];
    char reason[STEPAF_REASON_MAX];

    host->its =
        stepaf_device_map_peer((pid_t)ctx->job.ranks[peer->who.world_rank].pid, fd, bytes, reason);
    if (!host->its)
        return stepaf_error_set_peer(
            STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, peer->who,
            "the mailboxes of " STEPAF_WHO_FORMAT
            " in host memory cannot be mapped: %s; STEPAF_CUDA_PROXY=always avoids them",
            STEPAF_WHO_ARGS(peer->who), reason);
    host->its_bytes = bytes;
    return stepaf_gpu_pin(ctx->gpu.device, host->its, bytes, &host->its_pinned);
}

void stepaf_streams_unmap_host(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    for (uint32_t p = 0; streams->host && p < ctx->n_peers; p++) {
        struct stepaf_host_mailboxes *host = &streams->host[p];
        if (host->its_pinned)
            stepaf_gpu_unpin(ctx->gpu.device, host->its);
        if (host->its)
            munmap(host->its, host->its_bytes);
        host->its = NULL;
        host->its_pinned = false;
    }
}

void stepaf_streams_free_host(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    for (uint32_t p = 0; streams->host && p < ctx->n_peers; p++) {
        struct stepaf_host_mailboxes *host = &streams->host[p];
        if (host->pinned)
            stepaf_gpu_unpin(ctx->gpu.device, host->mem.base);
        if (host->made)
            stepaf_device_free(&host->mem);
        host->made = host->pinned = false;
    }
    free(streams->host);
    streams->host = NULL;
}
