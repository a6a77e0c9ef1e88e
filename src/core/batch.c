/* SPDX-License-Identifier: Apache-2.0 */
/* Batches at an FFN rank: arriving, being taken and answered. */
#include "core/batch.h"
#include "core/batch_ahead.h"
#include "core/batch_check.h"
#include "core/batch_end.h"
#include "core/batch_times.h"
#include "core/ctx.h"
#include "core/feature.h"
#include "core/imm.h"
#include "core/region.h"
#include "core/remote_plan.h"
#include "core/send.h"
#include "core/table.h"
#include "core/trace.h"

static inline __attribute__((always_inline)) void enlist(struct stepaf_batch_obj *batch)
{
    struct stepaf_peer *peer = batch->remote->peer;

    if (stepaf_list_empty(&peer->ready))
        peer->ctx->inbox.n_peers++;
    stepaf_list_append(&peer->ctx->inbox.ready, &batch->any);
    stepaf_list_append(&peer->ready, &batch->own);
}

/* Note that all sizes are as planned. */
static inline void take_planned_sizes(struct stepaf_batch_obj *batch)
{
    const struct stepaf_remote_plan *remote = batch->remote;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < remote->n_push; i++)
        sum += batch->bytes[i] = remote->push[i].bytes;
    remote->peer->bytes_received += sum;
}

/* Note the actual sizes. Return false if they are impossible. */
static bool take_push_sizes(struct stepaf_batch_obj *batch, const struct stepaf_msg *msg)
{
    const struct stepaf_remote_plan *remote = batch->remote;
    const uint32_t *sizes = &msg->word[STEPAF_MSG_SIZES];
    uint64_t sum = 0;

    if (!msg->n) {
        take_planned_sizes(batch);
        return true;
    }
    if (msg->n != remote->n_push)
        return false;
    for (uint32_t i = 0; i < msg->n; i++)
        if (sizes[i] > remote->push[i].bytes)
            return false;
    for (uint32_t i = 0; i < msg->n; i++)
        sum += batch->bytes[i] = sizes[i];
    remote->peer->bytes_received += sum;
    return true;
}

/* The peer cannot mean a busy slot: its last batch is not over, or the messages that end that batch
 * are still queued here. An answer that is POSTED has arrived, or the peer would not use the slot
 * again. */
bool stepaf_batch_busy(const struct stepaf_batch_obj *batch)
{
    return batch->state != STEPAF_BATCH_FREE || batch->answer.state == STEPAF_POST_QUEUED ||
           batch->release.state == STEPAF_POST_QUEUED;
}

/* Return whether the whole plan has been announced. */
static inline bool knows_all(const struct stepaf_remote_plan *remote)
{
    return remote->n_known == remote->n_push + remote->n_pull;
}

/* Return whether @a msg names the plan's next operation, or a later one, since scattered operations
 * may skip this rank. */
static inline bool is_in_turn(const struct stepaf_remote_plan *remote, const struct stepaf_msg *msg)
{
    uint32_t skipped = msg->seq - remote->seq;

    if (__builtin_expect(skipped == 0, 1))
        return msg->slot == remote->slot;
    return (int32_t)skipped > 0 && msg->slot == (remote->slot + skipped) % remote->depth;
}

/* Hand out a complete batch: to the caller, or to a stream. */
static inline __attribute__((always_inline)) void give_out(struct stepaf_peer *peer,
                                                           const struct stepaf_remote_plan *remote,
                                                           struct stepaf_batch_obj *batch)
{
    struct stepaf_ctx *ctx = peer->ctx;

    batch->state = STEPAF_BATCH_READY;
    batch->arrived = stepaf_arrival_ticks(ctx);
    ctx->counters.batches_received++;
    stepaf_batch_stamp(ctx, remote, batch->seq, STEPAF_EVENT_ARRIVED, batch->arrived);
    if (__builtin_expect(remote->proxy || remote->unbound, 0)) {
        batch->state = STEPAF_BATCH_HELD;
        batch->handled = batch->arrived;
        ctx->feature->arrived(batch);
        return;
    }
    enlist(batch);
}

void stepaf_batch_arrived(struct stepaf_batch_obj *batch)
{
    give_out(batch->remote->peer, batch->remote, batch);
    if (__builtin_expect(batch->canceled && batch->state == STEPAF_BATCH_READY, 0)) {
        stepaf_batch_unlist(batch);
        stepaf_batch_finish(batch);
    }
}

/* Assign the slot to the batch of operation @a seq, and advance the plan to its next operation. */
static inline __attribute__((always_inline)) void begin_batch(struct stepaf_ctx *ctx,
                                                              struct stepaf_remote_plan *remote,
                                                              struct stepaf_batch_obj *batch,
                                                              uint32_t seq)
{
    stepaf_post_complete(&batch->answer);
    remote->seq = seq + 1;
    remote->slot = (uint8_t)(batch->slot + 1 == remote->depth ? 0 : batch->slot + 1);
    batch->generation = stepaf_table_generation(&ctx->tables.batches);
    batch->seq = seq;
    batch->canceled = false;
    batch->answered = false;
    batch->answer.state = STEPAF_POST_IDLE;
}

/* Start a batch that receives something in GPU memory. */
static __attribute__((noinline)) void start_on_gpu(struct stepaf_batch_obj *batch,
                                                   const struct stepaf_msg *msg)
{
    struct stepaf_ctx *ctx = batch->remote->peer->ctx;
    stepaf_status_t status = ctx->feature->batch_bring(batch);

    if (status && status != STEPAF_INPROGRESS)
        return;
    begin_batch(ctx, batch->remote, batch, msg->seq);
    if (status == STEPAF_INPROGRESS)
        batch->state = STEPAF_BATCH_ARRIVING;
    else
        stepaf_batch_arrived(batch);
}

void stepaf_batch_start(struct stepaf_peer *peer, const struct stepaf_msg *msg)
{
    struct stepaf_ctx *ctx = peer->ctx;
    struct stepaf_remote_plan *remote =
        msg->plan < peer->n_remotes ? peer->remotes[msg->plan] : NULL;

    if (__builtin_expect(!remote || !knows_all(remote) || !is_in_turn(remote, msg) ||
                             stepaf_batch_busy(&remote->batches[msg->slot]),
                         0)) {
        ctx->counters.dropped_malformed++;
        return;
    }
    struct stepaf_batch_obj *batch = &remote->batches[msg->slot];
    if (__builtin_expect(!take_push_sizes(batch, msg), 0)) {
        ctx->counters.dropped_malformed++;
        return;
    }
    if (__builtin_expect(remote->on_gpu, 0)) {
        start_on_gpu(batch, msg);
        return;
    }
    begin_batch(ctx, remote, batch, msg->seq);
    give_out(peer, remote, batch);
}

/* Upcall. The plan's next operation with planned sizes is the most likely case. */
void stepaf_batch_deliver_imm(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm)
{
    struct stepaf_ctx *ctx = (struct stepaf_ctx *)up;
    struct stepaf_peer *peer = &ctx->peers[link->peer];
    uint32_t plan = stepaf_imm_plan(imm);
    struct stepaf_remote_plan *remote = plan < peer->n_remotes ? peer->remotes[plan] : NULL;
    struct stepaf_batch_obj *batch = remote ? &remote->batches[remote->slot] : NULL;

    if (__builtin_expect(!remote || peer->lost || remote->on_gpu || !knows_all(remote) ||
                             imm != (stepaf_imm_make(STEPAF_IMM_START, plan, remote->seq, 0) |
                                     ctx->commit.hears_imm) ||
                             stepaf_batch_busy(batch),
                         0)) {
        stepaf_imm_deliver(up, link, imm);
        return;
    }
    take_planned_sizes(batch);
    begin_batch(ctx, remote, batch, remote->seq);
    give_out(peer, remote, batch);
}

struct stepaf_batch_obj *stepaf_batch_take(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                           uint64_t now)
{
    struct stepaf_batch_obj *batch;

    if (peer) {
        if (stepaf_list_empty(&peer->ready))
            return NULL;
        batch = stepaf_container_of(peer->ready.next, struct stepaf_batch_obj, own);
    } else {
        if (stepaf_list_empty(&ctx->inbox.ready))
            return NULL;
        batch = stepaf_container_of(ctx->inbox.ready.next, struct stepaf_batch_obj, any);
    }
    stepaf_batch_unlist(batch);
    batch->state = STEPAF_BATCH_HELD;
    batch->handled = now > batch->arrived ? now : batch->arrived;
    stepaf_batch_stamp(ctx, batch->remote, batch->seq, STEPAF_EVENT_HANDLED, batch->handled);
    return batch;
}

/* Check the tensors and fill the writes. Set *n_sizes_p to the number of sizes that the message
 * must carry: none if all are as planned. After a rejection, nothing remains that the next try does
 * not set. */
static stepaf_status_t take_tensors(struct stepaf_batch_obj *batch, const stepaf_tensor_t *tensors,
                                    int n, uint32_t *n_sizes_p, bool *on_gpu_p)
{
    const struct stepaf_remote_plan *remote = batch->remote;

    *n_sizes_p = 0;
    *on_gpu_p = false;
    if (n && !tensors)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RESPOND, "tensors is NULL");
    if (n != remote->n_pull)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RESPOND,
                                "%d tensors given, %d expected", n, remote->n_pull);
    for (int i = 0; i < n; i++) {
        const struct stepaf_remote_plan_pull *pull = &remote->pull[i];
        const stepaf_tensor_t *tensor = &tensors[i];
        struct stepaf_xfer *xfer = &batch->xfers[i];
        const struct stepaf_region *region =
            stepaf_region_find_linked(remote->peer->ctx, tensor->data, tensor->bytes);
        if (tensor->key != pull->key_id || tensor->bytes > pull->bytes ||
            (!region && tensor->bytes))
            return stepaf_batch_refuse_tensor(batch, tensor, i);
        *on_gpu_p = *on_gpu_p || (region && region->mem.kind != STEPAF_MEM_HOST);
        stepaf_xfer_from(xfer, remote->peer->link, region, tensor->data);
        xfer->bytes = (uint32_t)tensor->bytes;
        batch->answer.msg.word[STEPAF_MSG_SIZES + i] = xfer->bytes;
        if (xfer->bytes != pull->bytes)
            *n_sizes_p = remote->n_pull;
    }
    return STEPAF_OK;
}

/* Write only what has not gone ahead of the answer. */
static void skip_ahead(struct stepaf_batch_obj *batch)
{
    const struct stepaf_remote_plan *remote = batch->remote;

    for (uint32_t i = 0; i < remote->n_pull; i++)
        stepaf_xfer_skip(&batch->xfers[i], stepaf_pull_offset(&remote->pull[i], batch->slot),
                         remote->ahead[i]);
}

/* Fill the answer's message. */
static inline void fill_answer(struct stepaf_batch_obj *batch, uint32_t n_sizes, uint32_t flags,
                               uint64_t now)
{
    const struct stepaf_remote_plan *remote = batch->remote;
    const struct stepaf_ctx *ctx = remote->peer->ctx;
    struct stepaf_post *post = &batch->answer;

    post->at = 0;
    post->at_offset = 0;
    post->is_short = !n_sizes;
    post->imm =
        stepaf_imm_make(flags & STEPAF_RESPOND_RELEASE ? STEPAF_IMM_RELEASED : STEPAF_IMM_RESPONSE,
                        remote->number, batch->seq, ctx->epoch);
    post->msg.seq = batch->seq;
    post->msg.n_words = STEPAF_MSG_SIZES + n_sizes;
    post->msg.word[STEPAF_MSG_QUEUE] = stepaf_span_ns(ctx, batch->arrived, batch->handled);
    post->msg.word[STEPAF_MSG_WORK] = stepaf_span_ns(ctx, batch->handled, now);
    stepaf_msg_head(&post->msg, STEPAF_MSG_RESPONSE,
                    flags & STEPAF_RESPOND_RELEASE ? STEPAF_MSG_RELEASED : 0, ctx->epoch,
                    remote->number, batch->slot, n_sizes);
    if (__builtin_expect(now - batch->arrived >= ctx->clock.told_from, 0))
        stepaf_batch_tell_times(batch, now - batch->arrived);
}

stepaf_status_t stepaf_batch_respond(struct stepaf_batch_obj *batch, const stepaf_tensor_t *tensors,
                                     int n, uint32_t flags)
{
    struct stepaf_remote_plan *remote = batch->remote;
    struct stepaf_ctx *ctx = remote->peer->ctx;
    uint64_t now = stepaf_ticks();
    stepaf_status_t status;
    bool on_gpu, bounced = false;
    uint32_t n_sizes;

    if (flags & ~(uint32_t)STEPAF_RESPOND_RELEASE)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RESPOND, "unknown flags");
    if ((status = stepaf_batch_check_state(batch)) ||
        (status = take_tensors(batch, tensors, n, &n_sizes, &on_gpu)))
        return status;
    if (__builtin_expect(ctx->inbox.ahead != NULL, 0) &&
        (status = stepaf_batch_leave_out_ahead(batch)))
        return status;
    if (__builtin_expect(on_gpu, 0) &&
        (status = ctx->feature->batch_source(batch, tensors, n, &bounced)))
        return status;
    fill_answer(batch, n_sizes, flags, now);
    if (__builtin_expect(remote->ahead != NULL, 0))
        skip_ahead(batch);
    batch->answered = true;
    batch->retired = false;
    batch->refused = false;
    batch->responded = batch->generation;
    if (__builtin_expect(bounced, 0)) {
        struct stepaf_post *answer = &batch->answer;
        ctx->feature->gate(&answer, 1, batch->copied);
        stepaf_core_post_mixed(ctx, &answer, 1);
    } else {
        stepaf_core_post_one(ctx, &batch->answer);
    }
    ctx->counters.responses_sent++;
    for (int i = 0; i < n; i++)
        remote->peer->bytes_sent += batch->xfers[i].bytes;
    if (__builtin_expect(!batch->answered, 0))
        return stepaf_batch_no_source();
    if (flags & STEPAF_RESPOND_RELEASE) {
        batch->state = STEPAF_BATCH_FREE;
        stepaf_batch_stamp(ctx, remote, batch->seq, STEPAF_EVENT_RESPONDED | STEPAF_TRACE_RELEASED,
                           now);
    } else {
        stepaf_batch_stamp(ctx, remote, batch->seq, STEPAF_EVENT_RESPONDED, now);
    }
    return STEPAF_OK;
}
