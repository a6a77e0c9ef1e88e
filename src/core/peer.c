/* SPDX-License-Identifier: Apache-2.0 */
/* A peer: what is known of its memory, and giving it up. */
#include "core/peer.h"
#include "core/ctx.h"

const struct stepaf_rmem *stepaf_peer_find_rmem(const struct stepaf_peer *peer, uint32_t id)
{
    for (uint32_t i = 0; i < peer->n_rmems; i++)
        if (peer->rmems[i]->id == id)
            return peer->rmems[i];
    return NULL;
}

void stepaf_peer_fail(struct stepaf_peer *peer, const char *reason)
{
    struct stepaf_upcalls *up = &peer->ctx->up;
    bool was_lost = peer->lost;

    up->lost(up, peer->link, reason);
    if (!was_lost)
        peer->link->ops->fence(peer->link);
}
