/* SPDX-License-Identifier: Apache-2.0 */
/* Resetting a peer: without a link to it, or for another process in its place. */
#include "core/peer_renew.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/ctx.h"
#include "core/peer.h"
#include "core/remote_plan.h"

/* ---- a link to nowhere ---- */

static unsigned post_nowhere(struct stepaf_post *const *posts, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        posts[i]->state = STEPAF_POST_SENT;
    return 0;
}

static void do_nothing(struct stepaf_link *link)
{
    (void)link;
}

/* The other functions are optional for transports. */
static const struct stepaf_transport_ops own_ops = {
    .name = "none", .post = post_nowhere, .disconnect = do_nothing};
static struct stepaf_transport_ops nowhere_ops;
static struct stepaf_transport nowhere = {.ops = &nowhere_ops};
static pthread_once_t is_completed = PTHREAD_ONCE_INIT;

static void complete_nowhere(void)
{
    nowhere_ops = stepaf_transport_complete(&own_ops);
}

/* Drop the link with everything that depends on it. */
static void part_from(struct stepaf_peer *peer)
{
    while (!stepaf_list_empty(&peer->queue)) { /* posts may belong to remote plans of the peer */
        struct stepaf_post *post = stepaf_container_of(peer->queue.next, struct stepaf_post, node);
        stepaf_list_remove(&post->node);
        if (post->owned)
            free(post);
        else
            post->state = STEPAF_POST_IDLE;
        if (stepaf_list_empty(&peer->queue))
            stepaf_list_remove(&peer->queue_node);
    }
    stepaf_remote_plans_free(peer);
    if (!peer->link)
        return;
    stepaf_peer_release(peer);
    peer->ctx->counters.bytes_sent += peer->bytes_sent;
    peer->ctx->counters.bytes_received += peer->bytes_received;
    peer->bytes_sent = peer->bytes_received = 0;
    peer->link->ops->disconnect(peer->link);
    peer->link = NULL;
}

void stepaf_peer_cut(struct stepaf_peer *peer, const char *reason)
{
    struct stepaf_upcalls *up = &peer->ctx->up;

    (void)pthread_once(&is_completed, complete_nowhere);
    part_from(peer);
    peer->nowhere = (struct stepaf_link){
        .ops = &nowhere_ops, .transport = &nowhere, .peer = peer->index, .dead = true, .name = "-"};
    peer->link = &peer->nowhere;
    up->lost(up, peer->link, reason);
}

void stepaf_peer_renew(struct stepaf_peer *peer)
{
    part_from(peer);
    peer->ctx->n_alive += peer->lost;
    peer->lost = peer->is_out = peer->oom = false;
    memset(&peer->clock, 0, sizeof(peer->clock)); /* nothing is known of the new process's clock */
    peer->ready_epoch = peer->quiesced = 0;
    peer->reason[0] = peer->refused[0] = '\0';
}
