/* SPDX-License-Identifier: Apache-2.0 */
/* Closing and freeing a context. */
#include <stdlib.h>

#include "base/fork.h"
#include "base/log.h"
#include "boot/member_net.h"
#include "core/ctx.h"
#include "core/feature.h"
#include "core/key_remove.h"
#include "core/lock.h"
#include "core/metrics.h"
#include "core/peer.h"
#include "core/plan.h"
#include "core/region.h"
#include "core/remote_plan.h"
#include "core/send.h"
#include "core/table.h"
#include "core/trace.h"
#include "core/trace_signal.h"
#include "core/wait.h"
#include "core/watch.h"
#include "device/gpu.h"

enum { FLUSH_US = 1000000 };

/* Send what is still queued, then BYE, so that peers need not detect the end. */
static void say_bye(struct stepaf_ctx *ctx)
{
    struct stepaf_msg bye = {.type = STEPAF_MSG_BYE};

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        stepaf_core_tell(&ctx->peers[p], &bye);
    stepaf_core_flush(ctx, FLUSH_US);
}

static void free_queue(struct stepaf_peer *peer)
{
    while (!stepaf_list_empty(&peer->queue)) {
        struct stepaf_post *post = stepaf_container_of(peer->queue.next, struct stepaf_post, node);
        stepaf_list_remove(&post->node);
        post->state = STEPAF_POST_IDLE; /* no other list holds the post to free it */
        if (post->owned)
            free(post);
    }
}

static void free_peer(struct stepaf_peer *peer)
{
    stepaf_remote_plans_free(peer);
    stepaf_peer_release(peer);
}

void stepaf_ctx_free(struct stepaf_ctx *ctx)
{
    stepaf_metrics_close(ctx);
    ctx->inbox.handler = NULL;
    stepaf_lock_enter(&ctx->lock); /* waiting releases the lock and takes it again */
    if (ctx->peers)
        say_bye(ctx);
    stepaf_lock_leave(&ctx->lock);
    for (uint32_t p = 0; ctx->peers && p < ctx->n_peers; p++)
        free_queue(&ctx->peers[p]); /* before freeing what its posts belong to */
    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (plan)
            stepaf_plan_free(plan);
    }
    for (uint32_t p = 0; ctx->peers && p < ctx->n_peers; p++)
        free_peer(&ctx->peers[p]);
    for (unsigned i = 0; i < ctx->net.n_transports; i++)
        ctx->net.transports[i]->ops->close(ctx->net.transports[i]);
    ctx->net.n_transports = 0;
    ctx->feature->free(ctx); /* transports may have had posts of the feature to send */
    stepaf_keys_free(ctx);
    stepaf_regions_free(ctx);
    ctx->feature->close(ctx);
    stepaf_gpu_close(ctx->gpu.device);
    stepaf_table_free(&ctx->tables.plans);
    stepaf_table_free(&ctx->tables.ops);
    stepaf_table_free(&ctx->tables.batches);
    free(ctx->cache.plans);
    stepaf_trace_signal_end(ctx);
    stepaf_trace_close(&ctx->trace);
    if (ctx->polling.watch)
        ctx->polling.watch->ops->close(ctx->polling.watch);
    free(ctx->net.ops);
    while (ctx->net.names) {
        struct stepaf_kept_name *next = ctx->net.names->next;
        free(ctx->net.names);
        ctx->net.names = next;
    }
    free(ctx->job.devices);
    free(ctx->peers);
    free(ctx->inbox.ahead);
    free(ctx->job.ranks);
    for (int g = 0; g < 3; g++)
        free(ctx->job.groups[g]);
    stepaf_member_net_close(ctx->job.members.net);
    if (ctx->job.members.event_fd >= 0)
        stepaf_fork_close(ctx->job.members.event_fd);
    free(ctx->job.members.is);
    free(ctx->job.members.present);
    free(ctx->job.members.can_return);
    free(ctx->job.members.returned);
    if (ctx->job.boot.close)
        ctx->job.boot.close(ctx->job.boot.self);
    stepaf_env_free(&ctx->env);
    free(ctx);
}
