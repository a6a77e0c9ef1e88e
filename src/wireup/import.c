/* SPDX-License-Identifier: Apache-2.0 */
/* Importing a peer's memory, and resolving this rank's keys in it. */
#include "wireup/import.h"

#include <stdlib.h>

#include "core/ctx.h"
#include "core/key.h"
#include "core/peer.h"
#include "core/region.h"

static int compare_rmems(const void *one, const void *other)
{
    const struct stepaf_rmem *a = *(struct stepaf_rmem *const *)one;
    const struct stepaf_rmem *b = *(struct stepaf_rmem *const *)other;

    return (a->id > b->id) - (a->id < b->id);
}

/* Import all regions that the peer offers, from the data of the link's transport in its advert. */
static stepaf_status_t import_all(struct stepaf_peer *peer, const struct stepaf_advert *advert)
{
    struct stepaf_unpack regions = advert->regions, unused;
    stepaf_status_t status = STEPAF_OK;
    uint32_t ours = 0;

    stepaf_peer_release(peer);
    if (!stepaf_advert_transport(advert, peer->link->ops->name, &unused, &ours))
        return stepaf_error_set_peer(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT, peer->who,
                                     STEPAF_WHO_FORMAT " has withdrawn its transport",
                                     STEPAF_WHO_ARGS(peer->who));
    peer->rmems = calloc((size_t)advert->n_regions + 1, sizeof(peer->rmems[0]));
    if (!peer->rmems)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (uint32_t i = 0; i < advert->n_regions && !status; i++) {
        uint32_t id = stepaf_unpack_u32(&regions);
        uint64_t bytes = stepaf_unpack_u64(&regions);
        for (uint32_t t = 0; t < advert->n_transports && !status; t++) {
            uint32_t length = stepaf_unpack_u32(&regions);
            const void *place = stepaf_unpack_bytes(&regions, length);
            struct stepaf_unpack unpack = stepaf_unpack_from(place, place ? length : 0);
            if (t != ours)
                continue;
            status = peer->link->ops->import_mem(peer->link, id, bytes, &unpack,
                                                 &peer->rmems[peer->n_rmems]);
            peer->n_rmems += !status;
        }
    }
    if (status)
        return stepaf_error_set_peer(status, STEPAF_PHASE_COMMIT, peer->who,
                                     "memory of " STEPAF_WHO_FORMAT ": %.200s",
                                     STEPAF_WHO_ARGS(peer->who), stepaf_last_error()->text);
    qsort(peer->rmems, peer->n_rmems, sizeof(peer->rmems[0]), compare_rmems);
    return STEPAF_OK;
}

static bool is_received_in_host(const struct stepaf_key *key, const struct stepaf_advert *advert)
{
    const struct stepaf_advert_key_row *its = stepaf_advert_key(advert, key->id);

    return its && its->mem_kind == STEPAF_MEM_HOST;
}

/* At an attention rank, find where each push key goes at this peer. */
static stepaf_status_t resolve_keys(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                    const struct stepaf_advert *advert)
{
    for (uint32_t i = 0; i < ctx->memory.n_keys; i++) {
        struct stepaf_key *key = ctx->memory.keys[i];
        uint64_t span = (uint64_t)key->depth * key->max_bytes;
        const struct stepaf_rmem *rmem = NULL;
        uint64_t offset = 0;
        uint32_t region;
        if (key->direction != STEPAF_PUSH)
            continue;
        if (stepaf_advert_slice(advert, key->id, ctx->job.ranks[ctx->job.boot.rank].rank, &region,
                                &offset))
            rmem = stepaf_peer_find_rmem(peer, region);
        if (!rmem && !is_received_in_host(key, advert)) {
            key->remote[peer->index] = (struct stepaf_key_remote){NULL, 0};
            continue; /* links do not reach GPU memory */
        }
        if (!rmem || offset > rmem->bytes || span > rmem->bytes - offset)
            return stepaf_error_set_peer(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT, peer->who,
                                         "key %llu has no receive buffer at " STEPAF_WHO_FORMAT,
                                         (unsigned long long)key->id, STEPAF_WHO_ARGS(peer->who));
        key->remote[peer->index] = (struct stepaf_key_remote){rmem, offset};
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_peer_import(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                   const struct stepaf_advert *advert)
{
    stepaf_status_t status = import_all(peer, advert);

    return status || !stepaf_is_attention(ctx) ? status : resolve_keys(ctx, peer, advert);
}
