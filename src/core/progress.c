/* SPDX-License-Identifier: Apache-2.0 */
/* Making things advance: sending, taking in, the handler, the progress thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

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
        stepaf_peer_fail(peer, "out of memory to tell it what it has to know");
}

/* Offer queued posts again. */
static unsigned flush_queues(struct stepaf_ctx *ctx)
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
            if (post->owned)
                free(post);
            n++;
        }
        if (stepaf_list_empty(&peer->queue)) {
            stepaf_list_remove(&peer->queue_node);
            peer->link->has_backlog = false;
        }
    }
    return n;
}

unsigned stepaf_core_progress_many(struct stepaf_ctx *ctx, unsigned polls)
{
    bool queued = !stepaf_list_empty(&ctx->net.queued);
    unsigned n = 0;

    for (unsigned i = 0; i < ctx->net.n_transports; i++)
        n += ctx->net.transports[i]->ops->progress(ctx->net.transports[i], queued ? 1 : polls);
    if (queued || !stepaf_list_empty(&ctx->net.queued))
        n += flush_queues(ctx);
    if (ctx->n_polled)
        n += ctx->feature->progress(ctx);
    return n;
}

bool stepaf_core_advance(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t deadline_ns)
{
    int64_t left_us = (deadline_ns - stepaf_monotonic_ns()) / 1000;

    return left_us > 0 && (stepaf_core_progress(ctx) || stepaf_waiter_idle(ctx, waiter, left_us));
}

void stepaf_core_flush(struct stepaf_ctx *ctx, int64_t timeout_us)
{
    struct stepaf_waiter waiter = stepaf_waiter_begin();
    bool more = true;

    while (more && !stepaf_list_empty(&ctx->net.queued))
        more = stepaf_core_progress(ctx) ? stepaf_waiter_busy(ctx, &waiter, timeout_us)
                                         : stepaf_waiter_idle(ctx, &waiter, timeout_us);
}

bool stepaf_core_is_dispatching(const struct stepaf_ctx *ctx)
{
    return ctx->inbox.dispatching && !pthread_equal(ctx->inbox.dispatcher, pthread_self());
}

void stepaf_core_dispatch(struct stepaf_ctx *ctx)
{
    stepaf_lock_enter(&ctx->lock);
    if (ctx->inbox.handler && !ctx->inbox.dispatching) {
        struct stepaf_batch_obj *batch;
        ctx->inbox.dispatching = true;
        ctx->inbox.dispatcher = pthread_self();
        while (ctx->inbox.handler && (batch = stepaf_batch_take(ctx, NULL, stepaf_ticks()))) {
            stepaf_batch_cb_t handler = ctx->inbox.handler;
            void *arg = ctx->inbox.handler_arg;
            stepaf_batch_h handle = stepaf_handle_make(STEPAF_HANDLE_BATCH, ctx->handle.slot,
                                                       batch->index, batch->generation);
            stepaf_lock_leave(&ctx->lock);
            handler(handle, arg);
            stepaf_lock_enter(&ctx->lock);
            ctx->inbox.n_dispatched++;
        }
        ctx->inbox.dispatching = false;
    }
    stepaf_lock_leave(&ctx->lock);
}

static void *progress_main(void *arg)
{
    struct stepaf_ctx *ctx = arg;
    struct stepaf_waiter waiter = stepaf_waiter_begin();

    (void)stepaf_topo_bind_thread(ctx->env.progress_cores); /* was checked at init */
    while (!atomic_load_explicit(&ctx->threads.stop, memory_order_relaxed)) {
        stepaf_lock_enter(&ctx->lock);
        if (stepaf_core_progress_waiting(ctx))
            waiter = stepaf_waiter_begin();
        else if (!stepaf_waiter_idle(ctx, &waiter, INT32_MAX))
            waiter = stepaf_waiter_begin();
        bool handle = ctx->inbox.handler != NULL;
        stepaf_lock_leave(&ctx->lock);
        if (handle)
            stepaf_core_dispatch(ctx);
    }
    return NULL;
}

stepaf_status_t stepaf_core_thread_start(struct stepaf_ctx *ctx)
{
    int error;

    if (!ctx->threads.progress_wanted)
        return STEPAF_OK;
    atomic_store(&ctx->threads.stop, false);
    error = pthread_create(&ctx->threads.progress, NULL, progress_main, ctx);
    if (error) {
        ctx->threads.progress_wanted = false;
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_COMMIT,
                                "cannot start the progress thread: %s", strerror(error));
    }
    ctx->threads.runs = true;
    return STEPAF_OK;
}

void stepaf_core_thread_stop(struct stepaf_ctx *ctx)
{
    if (!ctx->threads.runs)
        return;
    atomic_store(&ctx->threads.stop, true);
    pthread_join(ctx->threads.progress, NULL);
    ctx->threads.runs = false;
}
