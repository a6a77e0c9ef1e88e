/* SPDX-License-Identifier: Apache-2.0 */
/* What an FFN rank sends ahead of an answer. */
#include "core/batch_ahead.h"

#include <stdlib.h>
#include <string.h>

#include "core/batch.h"
#include "core/batch_check.h"
#include "core/ctx.h"
#include "core/region.h"
#include "core/remote_plan.h"
#include "core/send.h"

/* Reserve the entry of the batch with this number. */
static bool reserve_ahead(struct stepaf_ctx *ctx, uint32_t number)
{
    if (number >= ctx->inbox.n_ahead) {
        uint32_t n = number < 8 ? 16 : 2 * number;
        struct stepaf_batch_ahead **all = realloc(ctx->inbox.ahead, n * sizeof(all[0]));
        if (!all)
            return false;
        memset(&all[ctx->inbox.n_ahead], 0, (n - ctx->inbox.n_ahead) * sizeof(all[0]));
        ctx->inbox.ahead = all;
        ctx->inbox.n_ahead = n;
    }
    if (!ctx->inbox.ahead[number])
        ctx->inbox.ahead[number] = calloc(1, sizeof(*ctx->inbox.ahead[number]));
    return ctx->inbox.ahead[number] != NULL;
}

/* Return part @a index of the batch; NULL: out of memory. */
static struct stepaf_batch_part *find_part(struct stepaf_batch_obj *batch, uint32_t index)
{
    if (!reserve_ahead(batch->remote->peer->ctx, batch->index))
        return NULL;
    struct stepaf_batch_ahead *ahead = stepaf_batch_ahead_of(batch);
    if (ahead->generation != batch->generation) {
        stepaf_batch_ahead_complete(batch);
        ahead->sent = 0;
        ahead->generation = batch->generation;
    }
    struct stepaf_batch_part **part = &ahead->parts[index];
    if (!*part)
        *part = calloc(1, sizeof(**part));
    return *part;
}

static void post_part(struct stepaf_batch_obj *batch, struct stepaf_batch_part *part,
                      unsigned n_xfer, uint32_t index)
{
    const struct stepaf_remote_plan *remote = batch->remote;
    struct stepaf_ctx *ctx = remote->peer->ctx;

    part->post = (struct stepaf_post){
        .link = remote->peer->link, .xfer = &part->xfer, .n_xfer = (uint8_t)n_xfer};
    stepaf_msg_head(&part->post.msg, STEPAF_MSG_LANDED, 0, ctx->epoch, remote->number, batch->slot,
                    0);
    part->post.msg.seq = batch->seq;
    part->post.msg.n_words = STEPAF_MSG_SIZES;
    part->post.msg.word[STEPAF_MSG_TENSOR_INDEX] = index;
    part->post.msg.word[STEPAF_MSG_HERE] = part->bytes;
    stepaf_core_post_one(ctx, &part->post);
}

static stepaf_status_t check_tensor(const struct stepaf_batch_obj *batch, int index,
                                    const stepaf_tensor_t *tensor,
                                    const struct stepaf_region **region_p)
{
    const struct stepaf_remote_plan *remote = batch->remote;
    struct stepaf_ctx *ctx = remote->peer->ctx;

    if ((unsigned)index >= remote->n_pull || !tensor)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RESPOND,
                                "the answer has no tensor %d, or tensor is NULL", index);
    *region_p = stepaf_region_find_linked(ctx, tensor->data, tensor->bytes);
    if (tensor->key != remote->pull[index].key_id || tensor->bytes > remote->pull[index].bytes ||
        (!*region_p && tensor->bytes))
        return stepaf_batch_refuse_tensor(batch, tensor, index);
    if (*region_p && (*region_p)->mem.kind != STEPAF_MEM_HOST)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_RESPOND,
                                "tensor %d is in GPU memory, which is only sent with the answer",
                                index);
    const struct stepaf_batch_ahead *ahead = stepaf_batch_ahead_of(batch);
    if (ahead && ahead->generation == batch->generation && ahead->sent & 1u << index)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_RESPOND,
                                "tensor %d of the answer has been sent already", index);
    return STEPAF_OK;
}

stepaf_status_t stepaf_batch_send_ahead(struct stepaf_batch_obj *batch, int index,
                                        const stepaf_tensor_t *tensor)
{
    struct stepaf_remote_plan *remote = batch->remote;
    const struct stepaf_region *region = NULL;
    stepaf_status_t status = stepaf_batch_check_state(batch);

    if (status || (status = check_tensor(batch, index, tensor, &region)))
        return status;
    struct stepaf_batch_part *part = find_part(batch, (uint32_t)index);
    if (!part)
        return stepaf_error_no_memory(STEPAF_PHASE_RESPOND);
    const struct stepaf_remote_plan_pull *pull = &remote->pull[index];
    part->bytes = (uint32_t)tensor->bytes;
    part->xfer = (struct stepaf_xfer){.dst = pull->rmem,
                                      .dst_offset = stepaf_pull_offset(pull, batch->slot),
                                      .bytes = part->bytes};
    stepaf_xfer_from(&part->xfer, remote->peer->link, region, tensor->data);
    struct stepaf_batch_ahead *ahead = stepaf_batch_ahead_of(batch);
    ahead->sent |= 1u << index;
    remote->peer->bytes_sent += part->bytes;
    post_part(batch, part, 1, (uint32_t)index);
    return ahead->sent & 1u << index ? STEPAF_OK : stepaf_batch_no_source();
}

stepaf_status_t stepaf_batch_confirm(struct stepaf_batch_obj *batch)
{
    stepaf_status_t status = stepaf_batch_check_state(batch);

    if (status)
        return status;
    struct stepaf_batch_part *part = find_part(batch, STEPAF_MAX_TENSORS);
    if (!part)
        return stepaf_error_no_memory(STEPAF_PHASE_RESPOND);
    struct stepaf_batch_ahead *ahead = stepaf_batch_ahead_of(batch);
    if (ahead->sent & STEPAF_BATCH_CONFIRMED)
        return STEPAF_OK;
    ahead->sent |= STEPAF_BATCH_CONFIRMED;
    post_part(batch, part, 0, STEPAF_MSG_NO_TENSOR);
    return STEPAF_OK;
}

stepaf_status_t stepaf_batch_leave_out_ahead(struct stepaf_batch_obj *batch)
{
    const struct stepaf_batch_ahead *ahead = stepaf_batch_ahead_of(batch);

    if (!ahead || ahead->generation != batch->generation)
        return STEPAF_OK;
    for (uint32_t i = 0; i < batch->remote->n_pull; i++)
        if (ahead->sent & 1u << i && batch->xfers[i].bytes != ahead->parts[i]->bytes)
            return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RESPOND,
                                    "tensor %u of the answer has %u bytes, but %u were sent ahead",
                                    i, batch->xfers[i].bytes, ahead->parts[i]->bytes);
    for (uint32_t i = 0; i < batch->remote->n_pull; i++)
        if (ahead->sent & 1u << i)
            batch->xfers[i].bytes = 0;
    return STEPAF_OK;
}

/* An answer queued behind the post must then carry the tensor itself. */
bool stepaf_batch_refuse_ahead(struct stepaf_batch_obj *batch, const struct stepaf_post *post)
{
    struct stepaf_batch_ahead *ahead = stepaf_batch_ahead_of(batch);

    for (uint32_t i = 0; ahead && i < STEPAF_MAX_TENSORS; i++)
        if (ahead->parts[i] && &ahead->parts[i]->post == post) {
            ahead->sent &= ~(1u << i);
            if (batch->answered && batch->answer.state == STEPAF_POST_QUEUED)
                batch->xfers[i].bytes = ahead->parts[i]->bytes;
            else
                batch->remote->peer->bytes_sent -= ahead->parts[i]->bytes;
            return true;
        }
    return false;
}

void stepaf_batch_ahead_complete(struct stepaf_batch_obj *batch)
{
    const struct stepaf_batch_ahead *ahead = stepaf_batch_ahead_of(batch);

    for (int i = 0; ahead && i <= STEPAF_MAX_TENSORS; i++)
        if (ahead->parts[i])
            stepaf_post_complete(&ahead->parts[i]->post);
}

void stepaf_batch_ahead_free(struct stepaf_batch_obj *batch)
{
    struct stepaf_batch_ahead *ahead = stepaf_batch_ahead_of(batch);

    if (!ahead)
        return;
    stepaf_batch_ahead_complete(batch);
    for (int i = 0; i <= STEPAF_MAX_TENSORS; i++) {
        struct stepaf_batch_part *part = ahead->parts[i];
        if (part && part->post.state == STEPAF_POST_QUEUED)
            part->post.owned = true; /* the core frees it when the post has left */
        else
            free(part);
    }
    free(ahead);
    batch->remote->peer->ctx->inbox.ahead[batch->index] = NULL;
}

bool stepaf_batch_is_ahead(const struct stepaf_batch_obj *batch)
{
    const struct stepaf_batch_ahead *ahead = stepaf_batch_ahead_of(batch);

    for (int i = 0; ahead && i < STEPAF_MAX_TENSORS; i++)
        if (ahead->parts[i] && stepaf_post_in_flight(&ahead->parts[i]->post))
            return true;
    return false;
}

size_t stepaf_batch_ahead_bytes(const struct stepaf_batch_obj *batch)
{
    const struct stepaf_batch_ahead *ahead = stepaf_batch_ahead_of(batch);
    size_t bytes = ahead ? sizeof(*ahead) : 0;

    for (int i = 0; ahead && i <= STEPAF_MAX_TENSORS; i++)
        if (ahead->parts[i])
            bytes += sizeof(*ahead->parts[i]);
    return bytes;
}
