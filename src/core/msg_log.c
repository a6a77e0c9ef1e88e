/* SPDX-License-Identifier: Apache-2.0 */
/* Logging of messages between ranks at STEPAF_LOG_LEVEL=trace. */
#include "core/msg_log.h"

#include "base/log.h"
#include "core/deliver.h"
#include "core/imm.h"

static const char *msg_name(const struct stepaf_msg *msg)
{
    static const char *const names[STEPAF_MSG_TYPE_END] = {
        [STEPAF_MSG_START] = "START",       [STEPAF_MSG_RESPONSE] = "RESPONSE",
        [STEPAF_MSG_RELEASE] = "RELEASE",   [STEPAF_MSG_CANCEL] = "CANCEL",
        [STEPAF_MSG_PLAN] = "PLAN",         [STEPAF_MSG_TENSOR] = "TENSOR",
        [STEPAF_MSG_CLOSE] = "CLOSE",       [STEPAF_MSG_READY] = "READY",
        [STEPAF_MSG_PING] = "PING",         [STEPAF_MSG_PONG] = "PONG",
        [STEPAF_MSG_SYNCED] = "SYNCED",     [STEPAF_MSG_BYE] = "BYE",
        [STEPAF_MSG_QUIESCED] = "QUIESCED", [STEPAF_MSG_LANDED] = "LANDED",
        [STEPAF_MSG_ASK] = "ASK",           [STEPAF_MSG_TELL] = "TELL",
        [STEPAF_MSG_TOLD] = "TOLD"};

    return msg->type < STEPAF_MSG_TYPE_END && names[msg->type] ? names[msg->type] : "?";
}

static const struct stepaf_who *who_of(const struct stepaf_link *link)
{
    const struct stepaf_ctx *ctx = (const struct stepaf_ctx *)link->transport->up;

    return &ctx->peers[link->peer].who;
}

/* ---- received messages ---- */

static void log_come(const struct stepaf_link *link, const struct stepaf_msg *msg)
{
    const struct stepaf_who *who = who_of(link);

    stepaf_log_trace("from " STEPAF_WHO_FORMAT ": %s, plan %u, sequence %u, slot %u, epoch %u",
                     STEPAF_WHO_ARGS(*who), msg_name(msg), msg->plan, msg->seq, msg->slot,
                     msg->epoch);
}

static void deliver_logged(struct stepaf_upcalls *up, struct stepaf_link *link,
                           const struct stepaf_msg *msg)
{
    log_come(link, msg);
    stepaf_core_deliver(up, link, msg);
}

void stepaf_msg_log_begin(struct stepaf_ctx *ctx)
{
    if (ctx->env.log_level < STEPAF_ENV_LOG_LEVEL_trace)
        return;
    ctx->up.deliver = deliver_logged;
    ctx->up.deliver_imm = stepaf_imm_deliver; /* logged as the message that it stands for */
}

/* ---- sent messages ---- */

static void log_sent(const struct stepaf_post *post)
{
    const struct stepaf_who *who = who_of(post->link);
    const struct stepaf_msg *msg = &post->msg;
    uint64_t bytes = 0;

    for (unsigned i = 0; i < post->n_xfer; i++)
        bytes += post->xfer[i].bytes;
    stepaf_log_trace("to " STEPAF_WHO_FORMAT
                     ": %s, plan %u, sequence %u, slot %u, epoch %u, after %u writes of %llu bytes",
                     STEPAF_WHO_ARGS(*who), msg_name(msg), msg->plan, msg->seq, msg->slot,
                     msg->epoch, post->n_xfer, (unsigned long long)bytes);
}

/* Post and log. Posts without space are not logged: they are offered again. */
static unsigned post_logged(struct stepaf_post *const *posts, unsigned n)
{
    unsigned index = posts[0]->link->transport->index;
    unsigned queued = stepaf_transports[index]->post(posts, n);

    for (unsigned i = 0; i < n; i++)
        if (posts[i]->state != STEPAF_POST_QUEUED)
            log_sent(posts[i]);
    return queued;
}

void stepaf_msg_log_wrap(const struct stepaf_ctx *ctx, struct stepaf_transport_ops *ops)
{
    if (ctx->env.log_level >= STEPAF_ENV_LOG_LEVEL_trace)
        ops->post = post_logged;
}
