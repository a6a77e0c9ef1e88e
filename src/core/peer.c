/* SPDX-License-Identifier: Apache-2.0 */
/* Giving a peer up. */
#include "core/ctx.h"
#include "core/peer.h"

void stepaf_peer_fail(struct stepaf_peer *peer, const char *reason)
{
    struct stepaf_upcalls *up = &peer->ctx->up;
    bool was_lost = peer->lost;

    up->lost(up, peer->link, reason);
    if (!was_lost)
        peer->link->ops->fence(peer->link);
}
