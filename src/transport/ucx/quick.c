/* SPDX-License-Identifier: Apache-2.0 */
/* Quick messages, for the most frequent posts: one small tensor, or none, and a message that 32 bits
 * can express. The whole post is the header of one active message, and as short as possible: UCX's
 * shared memory transfers up to 92 bytes by its fastest path, so tensors of up to 64 bytes use it.
 * All other posts take the general path in send.c. */
#include <string.h>

#include "base/copy.h"
#include "base/writable.h"
#include "transport/ucx/ucx.h"

/* Return where to assemble the message; NULL: there is no space. */
static uint8_t *place_of_copy(struct stepaf_ucx *ucx, struct stepaf_ucx_out *out, uint32_t bytes)
{
    struct stepaf_ucx_copy *copy = ucx->free_copy;

    if (bytes <= sizeof(out->head))
        return out->head;
    if (!copy)
        return NULL;
    ucx->free_copy = copy->next;
    out->op.copy = copy;
    return copy->head + STEPAF_UCX_COPY_AT;
}

/* Write the head with the widths that UCX reads it with, 16 bytes and the rest: a wide read after
 * narrower writes would have to wait for all of them. */
static inline void put_head(uint8_t *to, const struct stepaf_fabric_link *shared, uint64_t place,
                            uint32_t imm)
{
    typedef uint64_t pair __attribute__((vector_size(16)));
    uint64_t whose = (uint32_t)place | shared->sender_at_peer;
    const pair first = {shared->token >> 32 | whose << 32, place >> 32 | (uint64_t)imm << 32};
    uint32_t last = (uint16_t)shared->sent | shared->taken << 16;

    _Static_assert(sizeof(first) + sizeof(last) == sizeof(struct stepaf_ucx_quick), "it is these");
    memcpy(to, &first, sizeof(first));
    memcpy(to + sizeof(first), &last, sizeof(last));
}

/* Send a post as a quick message. Returns false if the post does not fit one, or there is no space
 * now. */
static inline __attribute__((always_inline)) bool ucx_post_quick(struct stepaf_ucx_link *link,
                                                                 struct stepaf_post *post)
{
    struct stepaf_fabric_link *shared = &link->shared;
    struct stepaf_ucx *ucx = stepaf_ucx_of(link);
    struct stepaf_fabric_flight *flight = &shared->flight[shared->sent % STEPAF_FABRIC_RING];
    struct stepaf_ucx_out *out = &link->out[shared->sent % STEPAF_FABRIC_RING];
    const struct stepaf_xfer *xfer = post->xfer;
    ucp_request_param_t param; /* UCX reads only the fields that op_attr_mask names */
    uint32_t bytes = 0;
    uint64_t place = 0;

    if (!post->is_short || post->n_xfer > 1 || shared->open || flight->pending ||
        shared->sent - shared->credit >= STEPAF_FABRIC_RING)
        return false;
    if (post->n_xfer && xfer->bytes) {
        bytes = xfer->bytes;
        if (bytes > ucx->stage || xfer->dst->id >= STEPAF_UCX_QUICK_IDS ||
            xfer->dst_offset > UINT32_MAX)
            return false;
        place = xfer->dst_offset << 32 | xfer->dst->id << STEPAF_UCX_ID_SHIFT;
        if (xfer->src_mem->lent && !stepaf_is_readable(xfer->src, bytes)) {
            ucx->shared.base.up->refused(ucx->shared.base.up, post);
            return true;
        }
    }
    uint32_t all = (uint32_t)sizeof(struct stepaf_ucx_quick) + bytes;
    uint8_t *to = place_of_copy(ucx, out, all);
    if (!to)
        return false;
    put_head(to, shared, place, post->imm);
    if (bytes)
        stepaf_copy(to + sizeof(struct stepaf_ucx_quick), xfer->src, bytes);
    shared->told = shared->taken;
    shared->sent++;
    shared->base.messages_sent++;
    shared->base.bytes_sent += bytes;
    flight->post = NULL; /* the sources of the post are already free */
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = stepaf_ucx_has_been_sent;
    param.user_data = &out->op;
    ucs_status_ptr_t request =
        ucx->calls->am_send_nbx(link->ep, STEPAF_UCX_QUICK, to, all, NULL, 0, &param);
    if (__builtin_expect(!request && !out->op.copy, 1))
        shared->heard++;
    else
        (void)stepaf_ucx_answer(&out->op, request); /* on failure, the link is lost */
    return true;
}

/* The peer was lost during this post, and a part of the post may be in flight: nothing waits for that
 * part. */
static __attribute__((noinline, cold)) void leave_to_lost(struct stepaf_post *post)
{
    stepaf_fabric_retire(post);
    post->state = STEPAF_POST_SENT;
}

unsigned stepaf_ucx_post(struct stepaf_post *const *posts, unsigned n)
{
    unsigned n_queued = 0;

    for (unsigned i = 0; i < n; i++) {
        struct stepaf_post *post = posts[i];
        struct stepaf_ucx_link *link = (struct stepaf_ucx_link *)post->link;
        post->state = STEPAF_POST_SENT; /* also for a lost peer, which reads nothing */
        if (link->shared.base.dead)
            continue;
        bool is_sent = __builtin_expect(link->has_gpu, 0) && stepaf_ucx_touches_gpu(post)
                           ? stepaf_ucx_send_gpu_post(link, post)
                           : ucx_post_quick(link, post) || stepaf_ucx_send_post(link, post);
        if (is_sent)
            continue;
        if (link->shared.base.dead) {
            leave_to_lost(post);
            continue;
        }
        post->state = STEPAF_POST_QUEUED;
        n_queued++;
    }
    return n_queued;
}

static ucs_status_t drop_quick(struct stepaf_upcalls *up)
{
    up->dropped_malformed++;
    return UCS_OK;
}

ucs_status_t stepaf_ucx_take_quick(void *arg, const void *header, size_t header_bytes, void *data,
                                   size_t more, const ucp_am_recv_param_t *param)
{
    struct stepaf_ucx *ucx = arg;
    struct stepaf_upcalls *up = ucx->shared.base.up;
    size_t bytes = header_bytes - sizeof(struct stepaf_ucx_quick);
    struct stepaf_ucx_quick head;

    (void)data;
    (void)param;
    if (header_bytes < sizeof(head) || bytes > STEPAF_UCX_STAGE || more)
        return drop_quick(up);
    memcpy(&head, header, sizeof(head));
    uint32_t peer = head.whose & (STEPAF_FABRIC_PEERS - 1);
    if (head.token != ucx->shared.token >> 32 || peer >= ucx->shared.n_peers ||
        head.imm >> STEPAF_IMM_CODE_SHIFT == STEPAF_IMM_OTHER)
        return drop_quick(up);
    struct stepaf_ucx_link *link = &ucx->links[peer];
    if (link->shared.base.dead)
        return UCS_OK;
    if (!stepaf_fabric_is_due(&link->shared, STEPAF_FABRIC_MESSAGE, head.number))
        return drop_quick(up);
    link->shared.heard++;
    if (bytes) {
        struct stepaf_target to =
            up->resolve(up, head.whose >> STEPAF_UCX_ID_SHIFT, head.offset, (uint32_t)bytes);
        if (!to.at ||
            __builtin_expect(link->has_gpu && stepaf_ucx_gpu_named(link, &to) != NULL, 0)) {
            stepaf_ucx_has_no_place(link);
            return drop_quick(up);
        }
        if (to.mem->lent && !stepaf_is_writable(to.at, bytes)) {
            stepaf_ucx_cannot_write(link);
            return UCS_OK;
        }
        stepaf_copy(to.at, (const uint8_t *)header + sizeof(head), bytes);
    }
    stepaf_fabric_take_credit(&link->shared, head.taken);
    stepaf_fabric_count_imm(&link->shared, head.number, 0, head.imm);
    stepaf_ucx_note(link);
    return UCS_OK;
}
