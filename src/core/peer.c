/* SPDX-License-Identifier: Apache-2.0 */
/* Peers: look-up of their memory, and declaring a peer lost. */
#include "core/peer.h"

#include <stdlib.h>

#include "core/ctx.h"

const struct stepaf_rmem *stepaf_peer_find_rmem(const struct stepaf_peer *peer, uint32_t id)
{
    uint32_t low = 0, high = peer->n_rmems;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (peer->rmems[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < peer->n_rmems && peer->rmems[low]->id == id ? peer->rmems[low] : NULL;
}

void stepaf_peer_fail(struct stepaf_peer *peer, const char *reason)
{
    struct stepaf_upcalls *up = &peer->ctx->up;
    bool was_lost = peer->lost;

    up->lost(up, peer->link, reason);
    if (!was_lost)
        peer->link->ops->fence(peer->link);
}

void stepaf_peer_release(struct stepaf_peer *peer)
{
    for (uint32_t i = 0; i < peer->n_rmems; i++)
        peer->link->ops->release_mem(peer->link, peer->rmems[i]);
    free(peer->rmems);
    peer->rmems = NULL;
    peer->n_rmems = 0;
}

const char *stepaf_peer_why_lost(const struct stepaf_peer *peer)
{
    return peer->lost ? peer->reason : "another process has taken its place since";
}
