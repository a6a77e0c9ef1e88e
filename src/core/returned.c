/* SPDX-License-Identifier: Apache-2.0 */
#include "core/returned.h"

#include "base/interrupt.h"
#include "core/ctx.h"
#include "core/peer.h"

bool stepaf_returned_is(const struct stepaf_peer *peer)
{
    return peer->ctx->job.members.returned[peer->who.world_rank];
}

/* A rank that has returned itself waits less long for another one than the others wait for it: they
 * cannot see whether it waits. */
int64_t stepaf_returned_until_ns(const struct stepaf_ctx *ctx)
{
    int64_t halfway_ns = stepaf_halfway_ns(ctx->commit.members_deadline_ns);

    return ctx->job.members.returned[ctx->job.boot.rank] ? stepaf_halfway_ns(halfway_ns)
                                                         : halfway_ns;
}

bool stepaf_returned_go_on(struct stepaf_peer *peer)
{
    if (!stepaf_returned_is(peer))
        return false;
    if (!peer->lost)
        stepaf_peer_fail(peer, "it has not completed the commit in which it returned");
    return true;
}

bool stepaf_returned_is_late(struct stepaf_peer *peer, int64_t until_ns, int64_t deadline_ns)
{
    return until_ns < deadline_ns && !stepaf_interrupted() &&
           !atomic_load(&peer->ctx->threads.closing) && stepaf_returned_go_on(peer);
}
