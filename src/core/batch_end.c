/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a batch: released, canceled, its peer lost, or its answer not sent. */
#include "core/batch_end.h"
#include "core/batch_ahead.h"
#include "core/ctx.h"
#include "core/remote_plan.h"
#include "core/send.h"

/* Put the times of a batch that ends without an answer into the release. A batch that was never
 * taken has no work time. Times of a batch that ended before, because its answer was not sent, are
 * no longer known. */
static uint32_t put_times(struct stepaf_msg *msg, const struct stepaf_ctx *ctx,
                          const struct stepaf_batch_obj *batch, uint64_t now)
{
    bool taken = batch->state != STEPAF_BATCH_READY;

    msg->n_words = STEPAF_MSG_SIZES;
    msg->word[STEPAF_MSG_QUEUE] = stepaf_span_ns(ctx, batch->arrived, taken ? batch->handled : now);
    msg->word[STEPAF_MSG_WORK] = taken ? stepaf_span_ns(ctx, batch->handled, now) : UINT32_MAX;
    return STEPAF_MSG_UNWANTED | STEPAF_MSG_TIMED;
}

/* Notify the attention rank that the buffers are free: in the answer itself if that has not
 * left. */
static void send_release(struct stepaf_batch_obj *batch, uint64_t now)
{
    struct stepaf_ctx *ctx = batch->remote->peer->ctx;
    uint32_t flags = 0;

    if (batch->answered && batch->answer.state == STEPAF_POST_QUEUED) {
        batch->answer.msg.flags |= STEPAF_MSG_RELEASED;
        batch->answer.is_short = false;
        return;
    }
    batch->release.msg.n_words = 0;
    if (!batch->answered && batch->state == STEPAF_BATCH_FREE)
        flags = STEPAF_MSG_UNWANTED;
    else if (!batch->answered)
        flags = put_times(&batch->release.msg, ctx, batch, now);
    stepaf_msg_head(&batch->release.msg, STEPAF_MSG_RELEASE, flags, ctx->epoch,
                    batch->remote->number, batch->slot, 0);
    batch->release.msg.seq = batch->seq;
    stepaf_core_post_one(ctx, &batch->release);
}

void stepaf_batch_finish(struct stepaf_batch_obj *batch)
{
    uint64_t now = stepaf_ticks();

    if (!batch->remote->peer->lost)
        send_release(batch, now);
    batch->state = STEPAF_BATCH_FREE;
    stepaf_batch_stamp(batch->remote->peer->ctx, batch->remote, batch->seq, STEPAF_EVENT_RELEASED,
                       now);
}

void stepaf_batch_cancel(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_remote_plan *remote =
        msg->plan < peer->n_remotes ? peer->remotes[msg->plan] : NULL;
    struct stepaf_batch_obj *batch =
        remote && msg->slot < remote->depth ? &remote->batches[msg->slot] : NULL;

    if (!batch || batch->state == STEPAF_BATCH_FREE || batch->seq != msg->seq)
        return; /* answered and released while the CANCEL was in flight */
    batch->canceled = true;
    if (batch->state == STEPAF_BATCH_READY) {
        stepaf_batch_unlist(batch);
        stepaf_batch_finish(batch);
    }
}

void stepaf_batches_peer_lost(struct stepaf_peer *peer)
{
    for (uint32_t i = 0; i < peer->n_remotes; i++)
        for (int s = 0; peer->remotes[i] && s < peer->remotes[i]->depth; s++) {
            stepaf_post_complete(&peer->remotes[i]->batches[s].answer);
            stepaf_batch_ahead_complete(&peer->remotes[i]->batches[s]);
        }
}

void stepaf_batch_refused(struct stepaf_peer *peer, struct stepaf_post *post)
{
    struct stepaf_remote_plan *remote =
        post->msg.plan < peer->n_remotes ? peer->remotes[post->msg.plan] : NULL;
    struct stepaf_batch_obj *batch =
        remote && post->msg.slot < remote->depth ? &remote->batches[post->msg.slot] : NULL;

    if (!batch || stepaf_batch_refuse_ahead(batch, post) || &batch->answer != post)
        return;
    post->state = STEPAF_POST_IDLE;
    batch->answered = false;
    batch->refused = true;
    peer->ctx->counters.responses_sent--;
    for (uint32_t i = 0; i < post->n_xfer; i++)
        peer->bytes_sent -= post->xfer[i].bytes;
    if (batch->state == STEPAF_BATCH_FREE) /* the release was to go with the answer */
        send_release(batch, stepaf_ticks());
}
