/* SPDX-License-Identifier: Apache-2.0 */
/* Notification of callers that a rank is lost or out. */
#include "core/news.h"

#include <unistd.h>

#include "boot/member_net_return.h"
#include "core/ctx.h"

void stepaf_core_tell_news(struct stepaf_ctx *ctx)
{
    uint64_t one = 1;

    ctx->job.members.n_changes++;
    atomic_store(&ctx->job.members.is_news, true);
    if (ctx->job.members.event_fd >= 0)
        (void)!write(ctx->job.members.event_fd, &one, sizeof(one)); /* EAGAIN: already readable */
}

void stepaf_core_notice_lost(struct stepaf_ctx *ctx)
{
    struct stepaf_ctx_members *members = &ctx->job.members;
    uint32_t n = members->net ? stepaf_member_net_consensus(members->net)->n_lost +
                                    stepaf_member_net_asked(members->net)
                              : 0;

    if (n == members->n_lost_known)
        return;
    members->n_lost_known = n;
    stepaf_core_tell_news(ctx);
}
