/* SPDX-License-Identifier: Apache-2.0 */
/* Sending posts and messages, and the queues of those that transports have no space for. */
#include <stdlib.h>

#include "core/ctx.h"
#include "core/feature.h"
#include "core/peer.h"
#include "core/send.h"

static void enqueue(struct stepaf_peer *peer, struct stepaf_post *post)
{
    struct stepaf_ctx *ctx = peer->ctx;

    post->state = STEPAF_POST_QUEUED;
    if (stepaf_list_empty(&peer->queue))
        stepaf_list_append(&ctx->net.queued, &peer->queue_node);
    stepaf_list_append(&peer->queue, &post->node);
    peer->link->has_backlog = true;
    ctx->counters.queued++;
}

void stepaf_core_keep(struct stepaf_ctx *ctx, struct stepaf_post *const *posts, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (posts[i]->state == STEPAF_POST_QUEUED)
            enqueue(&ctx->peers[posts[i]->link->peer], posts[i]);
}

void stepaf_core_post_mixed(struct stepaf_ctx *ctx, struct stepaf_post *const *posts, unsigned n)
{
    for (unsigned from = 0, to; from < n; from = to) {
        const struct stepaf_link *link = posts[from]->link;
        to = from + 1;
        if (__builtin_expect(link->has_backlog, 0)) {
            enqueue(&ctx->peers[link->peer], posts[from]);
            continue;
        }
        while (to < n && posts[to]->link->transport == link->transport &&
               !posts[to]->link->has_backlog)
            to++;
        if (link->ops->post(&posts[from], to - from))
            stepaf_core_keep(ctx, &posts[from], to - from);
    }
}

bool stepaf_core_send(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    bool waits = peer->ctrl_post.state == STEPAF_POST_QUEUED;
    struct stepaf_post *post = waits ? malloc(sizeof(*post)) : &peer->ctrl_post;

    if (!post)
        return false;
    *post = (struct stepaf_post){.link = peer->link, .owned = waits, .msg = *msg};
    post->msg.n_words = STEPAF_MSG_WORDS;
    stepaf_core_post_one(peer->ctx, post);
    if (post->owned && post->state != STEPAF_POST_QUEUED)
        free(post);
    return true;
}

void stepaf_core_tell(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    if (peer->link && !peer->lost && !stepaf_core_send(peer, msg))
        stepaf_peer_fail(peer, "out of memory for a message to it");
}

unsigned stepaf_core_send_queued(struct stepaf_ctx *ctx)
{
    struct stepaf_list *node = ctx->net.queued.next;
    unsigned n = 0;

    while (node != &ctx->net.queued) {
        struct stepaf_peer *peer = stepaf_container_of(node, struct stepaf_peer, queue_node);
        node = node->next;
        while (!stepaf_list_empty(&peer->queue)) {
            struct stepaf_post *post =
                stepaf_container_of(peer->queue.next, struct stepaf_post, node);
            if (__builtin_expect(post->is_gated, 0) && !ctx->feature->gate_open(peer, post))
                break;
            if (post->link->ops->post(&post, 1))
                break;
            stepaf_list_remove(&post->node);
            if (post->owned) {
                stepaf_post_complete(post);
                free(post);
            }
            n++;
        }
        if (stepaf_list_empty(&peer->queue)) {
            stepaf_list_remove(&peer->queue_node);
            peer->link->has_backlog = false;
        }
    }
    return n;
}
