/* SPDX-License-Identifier: Apache-2.0 */
/* The commonest posts: one tensor of few bytes, or none, and a message that 32 bits can say. All of
 * it is the header of one active message, and as short as it can be: UCX's shared memory carries
 * about 90 bytes at the least cost, so that tensors of up to 64 go by that. Whatever is otherwise
 * takes the long way of send.c. */
#include <string.h>

#include "transport/ucx/ucx.h"

/* Where a copy of it is put together; NULL: there is no room. */
static uint8_t *place_of_copy(struct stepaf_ucx *ucx, struct stepaf_ucx_out *out, uint32_t bytes)
{
    struct stepaf_ucx_copy *copy = ucx->free_copy;

    if (bytes <= sizeof(out->head))
        return out->head;
    if (!copy)
        return NULL;
    ucx->free_copy = copy->next;
    out->op.copy = copy;
    return copy->head;
}

/* Whole words: narrow ones would have to be put together before they can be read as these. */
static void put_head(uint8_t *to, const struct stepaf_fabric_link *shared, uint64_t place,
                     uint32_t imm)
{
    uint64_t word[3] = {shared->token, place | stepaf_ucx_is_quick | shared->index_at_peer,
                        imm | (uint64_t)(uint16_t)shared->sent << 32 |
                            (uint64_t)shared->taken << 48};

    _Static_assert(sizeof(word) == sizeof(struct stepaf_ucx_quick), "it is these words");
    memcpy(to, &word[0], sizeof(word[0]));
    memcpy(to + sizeof(word[0]), &word[1], sizeof(word[1]));
    memcpy(to + 2 * sizeof(word[0]), &word[2], sizeof(word[2]));
}

bool stepaf_ucx_post_quick(struct stepaf_ucx_link *link, const struct stepaf_post *post)
{
    struct stepaf_fabric_link *shared = &link->shared;
    struct stepaf_ucx_out *out = &link->out[shared->sent % STEPAF_FABRIC_RING];
    const struct stepaf_xfer *xfer = post->xfer;
    uint32_t bytes = 0;
    uint64_t place = 0;

    if (!post->is_short || post->n_xfer > 1 || shared->open || out->op.flight->pending ||
        out->due || out->waits || shared->sent - shared->credit >= STEPAF_FABRIC_RING)
        return false;
    if (post->n_xfer && xfer->bytes) {
        bytes = xfer->bytes;
        if (bytes > STEPAF_UCX_STAGE || xfer->dst->id >= STEPAF_UCX_QUICK_IDS ||
            xfer->dst_offset > UINT32_MAX)
            return false;
        place = xfer->dst_offset << 32 | xfer->dst->id << STEPAF_UCX_ID_SHIFT;
    }
    uint32_t all = (uint32_t)sizeof(struct stepaf_ucx_quick) + bytes;
    uint8_t *to = place_of_copy(stepaf_ucx_of(link), out, all);
    if (!to)
        return false;
    put_head(to, shared, place, post->imm);
    if (bytes)
        memcpy(to + sizeof(struct stepaf_ucx_quick), xfer->src, bytes);
    shared->told = shared->taken;
    shared->sent++;
    shared->base.messages_sent++;
    shared->base.bytes_sent += bytes;
    out->op.flight->post = NULL;                          /* its sources are free already */
    (void)stepaf_ucx_send_am(&out->op, to, all, NULL, 0); /* else it is lost */
    return true;
}

/* False: it makes no sense. */
bool stepaf_ucx_take_quick(struct stepaf_ucx *ucx, const uint8_t *header, size_t bytes)
{
    struct stepaf_upcalls *up = ucx->shared.base.up;
    struct stepaf_ucx_quick head;

    if (bytes < sizeof(head))
        return false;
    memcpy(&head, header, sizeof(head));
    bytes -= sizeof(head);
    uint32_t peer = head.whose & (STEPAF_FABRIC_PEERS - 1);
    if (head.token != ucx->shared.token || peer >= ucx->shared.n_peers ||
        bytes > STEPAF_UCX_STAGE || head.imm >> STEPAF_IMM_CODE_SHIFT == STEPAF_IMM_OTHER)
        return false;
    struct stepaf_ucx_link *link = &ucx->links[peer];
    if (link->shared.base.dead)
        return true;
    if (!stepaf_fabric_is_due(&link->shared, STEPAF_FABRIC_MESSAGE, head.number))
        return false;
    link->shared.heard++;
    if (bytes) {
        struct stepaf_target to =
            up->resolve(up, head.whose >> STEPAF_UCX_ID_SHIFT & (STEPAF_UCX_QUICK_IDS - 1),
                        head.offset, (uint32_t)bytes);
        if (!to.at ||
            __builtin_expect(link->has_gpu && stepaf_ucx_gpu_named(link, &to) != NULL, 0)) {
            stepaf_ucx_has_no_place(link);
            return false;
        }
        memcpy(to.at, header + sizeof(head), bytes);
    }
    stepaf_fabric_take_credit(&link->shared, head.taken);
    stepaf_fabric_count_imm(&link->shared, head.number, 0, head.imm);
    stepaf_ucx_note(link);
    return true;
}
