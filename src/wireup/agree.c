/* SPDX-License-Identifier: Apache-2.0 */
/* After the connects of the first commit, where some transport asks for it: nobody sends before all
 * have connected, and where one could not, all learn why. The other end of a link that could not be
 * made knows nothing of that by itself. So each rank also says which transport it has taken for each
 * peer, and whoever has got a better one than the peer follows it. */
#include <stdlib.h>

#include "wireup/connect.h"

enum { NONE = UINT8_MAX };

/* Which of the peer's transports has been taken, as the peer counts them. */
static uint8_t taken_by(const struct stepaf_peer *peer, const struct stepaf_advert *advert)
{
    struct stepaf_unpack unused;
    uint32_t index = NONE;

    if (peer->link)
        (void)stepaf_advert_transport(advert, peer->link->ops->name, &unused, &index);
    return (uint8_t)index;
}

static stepaf_status_t refuse_malformed(int rank)
{
    return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                            "world rank %d: what it says of its links is malformed", rank);
}

/* The first rank's failure, as this rank's own, unless that has one. *taken_p: what each has taken for
 * this rank, if it is a peer. */
static stepaf_status_t check_links(const struct stepaf_ctx *ctx, const uint8_t *all,
                                   const size_t *offsets, uint8_t *taken_p)
{
    char text[STEPAF_ERROR_TEXT_MAX];

    for (int r = 0; r < ctx->job.boot.size; r++) {
        struct stepaf_unpack unpack =
            stepaf_unpack_from(all + offsets[r], offsets[r + 1] - offsets[r]);
        stepaf_status_t status = stepaf_status_from(stepaf_unpack_u32(&unpack));
        stepaf_unpack_text(&unpack, text, sizeof(text));
        uint32_t n = stepaf_unpack_u32(&unpack);
        const uint8_t *taken = stepaf_unpack_bytes(&unpack, n);
        if (unpack.failed)
            return refuse_malformed(r);
        if (status)
            return stepaf_error_set(status, STEPAF_PHASE_COMMIT, "world rank %d: %.280s", r, text);
        taken_p[r] = ctx->job.mesh.slot < n ? taken[ctx->job.mesh.slot] : NONE;
    }
    return STEPAF_OK;
}

static stepaf_status_t tell_all(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                stepaf_status_t own, const char *text, int64_t timeout_us,
                                uint8_t *taken_p)
{
    size_t *offsets = calloc((size_t)ctx->job.boot.size + 1, sizeof(*offsets));
    struct stepaf_pack pack = {0};
    stepaf_status_t status;
    void *all = NULL;

    stepaf_pack_u32(&pack, (uint32_t)own);
    stepaf_pack_text(&pack, own ? text : "");
    stepaf_pack_u32(&pack, ctx->n_peers);
    for (uint32_t p = 0; p < ctx->n_peers; p++) {
        const struct stepaf_peer *peer = &ctx->peers[p];
        uint8_t taken = taken_by(peer, &adverts[peer->who.world_rank]);
        stepaf_pack_bytes(&pack, &taken, sizeof(taken));
    }
    if (!offsets || !taken_p || pack.failed)
        status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    else
        status = ctx->job.boot.allgather(ctx->job.boot.self, pack.data, pack.bytes, &all, offsets,
                                         timeout_us);
    if (!status && !own)
        status = check_links(ctx, all, offsets, taken_p);
    free(pack.data);
    free(offsets);
    free(all);
    return status;
}

/* Where a peer has taken another transport, the better one of the two does not work both ways. */
static stepaf_status_t agree(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                             const uint8_t *taken)
{
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t p = 0; p < ctx->n_peers && !status; p++) {
        struct stepaf_peer *peer = &ctx->peers[p];
        int rank = peer->who.world_rank;
        unsigned mine = 0;
        if (taken[rank] >= ctx->net.n_transports)
            return refuse_malformed(rank);
        while (ctx->net.transports[mine] != peer->link->transport)
            mine++;
        if (mine < taken[rank])
            status =
                stepaf_peer_fall_back(ctx, peer, &adverts[rank], ctx->net.transports[taken[rank]]);
    }
    return status;
}

stepaf_status_t stepaf_ranks_agree(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                   stepaf_status_t own, int64_t deadline_ns)
{
    stepaf_error_t error = *stepaf_last_error();
    int64_t left_us = (deadline_ns - stepaf_monotonic_ns()) / 1000;
    bool any = false;

    for (int r = 0; r < ctx->job.boot.size; r++)
        any = any || adverts[r].agrees;
    if (!any || ctx->epoch > 1)
        return own;
    uint8_t *taken = malloc((size_t)ctx->job.boot.size);
    stepaf_status_t status =
        tell_all(ctx, adverts, own, error.text, left_us > 0 ? left_us : 1, taken);
    if (!status && !own)
        status = agree(ctx, adverts, taken);
    free(taken);
    return own ? stepaf_error_raise(&error) : status;
}
