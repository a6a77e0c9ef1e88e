/* SPDX-License-Identifier: Apache-2.0 */
/* Find out which ranks can write to which GPU memory; no driver answers that for a GPU that a
 * process does not see. At the first commit with stream plans, after the exchange of adverts, the
 * peers of the node map the memory that was advertised, and all ranks tell which of it they could
 * not map. Then the adverts are made anew, with mailboxes in host memory for these peers. */
#include <stdlib.h>
#include <string.h>

#include "core/members.h"
#include "gpu/proxy.h"
#include "gpu/stream_advert.h"

enum { WORD = sizeof(uint32_t) };

stepaf_status_t stepaf_streams_prepare_reach(struct stepaf_ctx *ctx)
{
    struct stepaf_streams *streams = ctx->gpu.streams;
    uint32_t magic = STEPAF_REACH_MAGIC;

    if (!ctx->gpu.unreached)
        ctx->gpu.unreached = calloc(ctx->n_peers + 1, sizeof(*ctx->gpu.unreached));
    streams->reach = calloc(WORD + ctx->n_peers, sizeof(*streams->reach));
    if (!ctx->gpu.unreached || !streams->reach)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    memcpy(streams->reach, &magic, WORD);
    if (ctx->job.members.is_guest && !ctx->epoch)
        ctx->gpu.answered = true; /* the members have met without this process */
    for (uint32_t p = 0; p < ctx->n_peers && !ctx->gpu.answered; p++)
        if (!stepaf_peer_proxied(ctx, p) && !stepaf_stream_in_host(ctx, p) &&
            ctx->env.cuda_mailbox == STEPAF_ENV_CUDA_MAILBOX_auto)
            ctx->gpu.asks = true;
    return STEPAF_OK;
}

/* Memory of this process is used at the address that the advert has, without a mapping. So the
 * advert alone is not believed that it is this process's: the hellos must say the same. */
stepaf_status_t stepaf_stream_import(const struct stepaf_peer *peer,
                                     const struct stepaf_gpu_export *exported, void **ptr_p)
{
    const struct stepaf_ctx *ctx = peer->ctx;
    const struct stepaf_rank *own = &ctx->job.ranks[ctx->job.boot.rank];
    const struct stepaf_rank *its = &ctx->job.ranks[peer->who.world_rank];
    struct stepaf_gpu_export checked = *exported;

    if (own->node_id != its->node_id || own->pid != its->pid)
        checked.process = 0; /* no process has this number */
    return stepaf_gpu_import(ctx->gpu.device, &checked, ptr_p);
}

/* Find out whether this rank cannot map the peer's mailboxes. A failure is no answer. */
static stepaf_status_t try_peer(const struct stepaf_peer *peer, const struct stepaf_advert *its,
                                uint8_t *unreached_p)
{
    struct stepaf_stream_advert stream_advert;
    stepaf_status_t status;
    uint64_t bytes;
    void *ptr;
    int fd;

    status = stepaf_stream_advert_read(its->streams, its->role, its->world_rank, &stream_advert);
    if (status)
        return status;
    if (stream_advert.n_plans &&
        !stepaf_stream_advert_host(&stream_advert, peer->ctx->job.mesh.slot, &fd, &bytes)) {
        *unreached_p = stepaf_stream_import(peer, &stream_advert.mailboxes, &ptr) != STEPAF_OK;
        if (!*unreached_p)
            stepaf_gpu_unimport(peer->ctx->gpu.device, ptr);
    }
    stepaf_stream_advert_free(&stream_advert);
    return STEPAF_OK;
}

/* Note what rank @a r says; *any_p: there is a peer whose memory it cannot write. */
static stepaf_status_t note_reach(struct stepaf_ctx *ctx, int r, const uint8_t *told, size_t bytes,
                                  bool *any_p)
{
    uint32_t magic = 0;

    if (bytes >= WORD)
        memcpy(&magic, told, WORD);
    if (magic != STEPAF_REACH_MAGIC)
        return stepaf_error_set_peer(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                     stepaf_who_is(ctx, r),
                                     "world rank %d has sent malformed data about its reach", r);
    for (size_t i = WORD; i < bytes; i++)
        *any_p = *any_p || told[i];
    for (uint32_t p = 0; p < ctx->n_peers && ctx->gpu.asks; p++)
        if (ctx->peers[p].who.world_rank == r && ctx->job.mesh.slot < bytes - WORD)
            ctx->gpu.unreached[p] = told[WORD + ctx->job.mesh.slot] != 0;
    return STEPAF_OK;
}

stepaf_status_t stepaf_streams_agree_reach(struct stepaf_ctx *ctx,
                                           const struct stepaf_advert *adverts, size_t *offsets,
                                           int64_t timeout_us, bool *again_p)
{
    static const uint32_t magic = STEPAF_REACH_MAGIC;
    struct stepaf_streams *streams = ctx->gpu.streams;
    bool tries = streams && streams->reach;
    stepaf_status_t own = STEPAF_OK, status;
    uint8_t *all = NULL;

    for (uint32_t p = 0; tries && p < ctx->n_peers && !own; p++) {
        const struct stepaf_advert *its = &adverts[ctx->peers[p].who.world_rank];
        if (its->asks && !its->absent && !stepaf_peer_proxied(ctx, p))
            own = try_peer(&ctx->peers[p], its, &streams->reach[WORD + p]);
    }
    stepaf_error_t error = *stepaf_last_error();
    status = stepaf_members_exchange(ctx, tries ? streams->reach : (void *)&magic,
                                     WORD + (tries ? ctx->n_peers : 0), (void **)&all, offsets,
                                     timeout_us);
    if (own)
        status = stepaf_error_raise(&error);
    *again_p = false;
    for (int r = 0; r < ctx->job.boot.size && !status; r++)
        if (ctx->job.members.present[r])
            status = note_reach(ctx, r, all + offsets[r], offsets[r + 1] - offsets[r], again_p);
    if (!status && ctx->gpu.asks)
        ctx->gpu.answered = true;
    free(all);
    return status;
}
