/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a batch: released, canceled, its peer lost, or its answer refused. */
#include "core/batch_end.h"
#include "core/ctx.h"
#include "core/remote_plan.h"
#include "core/send.h"

/* Tell the attention rank that the buffers are free, in the answer itself if it has not left. */
static void send_release(struct stepaf_batch_obj *batch)
{
    struct stepaf_ctx *ctx = batch->remote->peer->ctx;

    if (batch->answered && batch->answer.state == STEPAF_POST_QUEUED) {
        batch->answer.msg.flags |= STEPAF_MSG_RELEASED;
        batch->answer.is_short = false;
        return;
    }
    stepaf_msg_head(&batch->release.msg, STEPAF_MSG_RELEASE,
                    batch->answered ? 0 : STEPAF_MSG_UNWANTED, ctx->epoch, batch->remote->number,
                    batch->slot, 0);
    batch->release.msg.seq = batch->seq;
    stepaf_core_post_one(ctx, &batch->release);
}

void stepaf_batch_finish(struct stepaf_batch_obj *batch)
{
    if (!batch->remote->peer->lost)
        send_release(batch);
    stepaf_batch_retire(batch, stepaf_ticks());
}

void stepaf_batch_cancel(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_remote_plan *remote =
        msg->plan < peer->n_remotes ? peer->remotes[msg->plan] : NULL;
    struct stepaf_batch_obj *batch =
        remote && msg->slot < remote->depth ? &remote->batches[msg->slot] : NULL;

    if (!batch || batch->state == STEPAF_BATCH_FREE || batch->seq != msg->seq)
        return; /* it was answered and released while the word was on its way */
    batch->canceled = true;
    if (batch->state == STEPAF_BATCH_READY) {
        stepaf_batch_unlist(batch);
        stepaf_batch_finish(batch);
    }
}

void stepaf_batches_peer_lost(struct stepaf_peer *peer)
{
    for (uint32_t i = 0; i < peer->n_remotes; i++)
        for (int s = 0; peer->remotes[i] && s < peer->remotes[i]->depth; s++)
            stepaf_post_complete(&peer->remotes[i]->batches[s].answer);
}

void stepaf_batch_refused(struct stepaf_peer *peer, struct stepaf_post *post)
{
    struct stepaf_remote_plan *remote =
        post->msg.plan < peer->n_remotes ? peer->remotes[post->msg.plan] : NULL;
    struct stepaf_batch_obj *batch =
        remote && post->msg.slot < remote->depth ? &remote->batches[post->msg.slot] : NULL;

    if (!batch || &batch->answer != post)
        return;
    post->state = STEPAF_POST_IDLE;
    batch->answered = false;
    peer->ctx->counters.responses_sent--;
    for (uint32_t i = 0; i < post->n_xfer; i++)
        peer->bytes_sent -= post->xfer[i].bytes;
    if (batch->state == STEPAF_BATCH_FREE) /* the release was to go with it */
        send_release(batch);
}
