/* SPDX-License-Identifier: Apache-2.0 */
/* Send posts that are not quick. A post with few bytes is one active message with a copy of its
 * tensors. Otherwise each tensor is an active message, and the last one also has the post's
 * message. */
#include <stdio.h>
#include <string.h>

#include "base/writable.h"
#include "device/gpu.h"
#include "transport/ucx/ucx.h"

static struct stepaf_ucx_head head_of(struct stepaf_ucx_link *link, enum stepaf_fabric_kind kind,
                                      uint32_t number)
{
    return (struct stepaf_ucx_head){.token = link->shared.token,
                                    .peer = link->shared.sender_at_peer,
                                    .number = number,
                                    .taken = link->shared.taken,
                                    .kind = (uint8_t)kind};
}

bool stepaf_ucx_control(struct stepaf_fabric_link *shared, enum stepaf_fabric_kind kind)
{
    struct stepaf_ucx_link *link = (struct stepaf_ucx_link *)shared;
    struct stepaf_ucx_op *op = stepaf_ucx_take_control(stepaf_ucx_of(link), &shared->control);
    struct stepaf_ucx_head head = head_of(link, kind, shared->taken);

    if (!op)
        return false;
    memcpy(op->head, &head, sizeof(head));
    shared->told = shared->taken;
    return stepaf_ucx_send_am(op, op->head, sizeof(head), NULL, 0);
}

/* Append the place of a tensor to a head. */
static void add_place(uint8_t *head, unsigned n, const struct stepaf_xfer *xfer)
{
    const struct stepaf_ucx_place place = {xfer->dst_offset, xfer->dst->id, xfer->bytes};

    memcpy(head + sizeof(struct stepaf_ucx_head) + n * sizeof(place), &place, sizeof(place));
}

/* Assemble the head of a message at @a to, where its places already are. */
static void compose(struct stepaf_ucx_link *link, struct stepaf_ucx_out *out, uint8_t *to,
                    const struct stepaf_post *post, unsigned n_places)
{
    struct stepaf_ucx_head head = head_of(link, STEPAF_FABRIC_MESSAGE, link->shared.sent);
    uint8_t *at = to + sizeof(head) + n_places * sizeof(struct stepaf_ucx_place);

    head.pieces = link->shared.open->pieces;
    head.n_places = (uint16_t)n_places;
    head.is_short = post->is_short;
    head.imm = post->imm;
    memcpy(to, &head, sizeof(head));
    if (!head.is_short) {
        size_t msg_bytes =
            offsetof(struct stepaf_msg, word) + post->msg.n_words * sizeof(post->msg.word[0]);
        memcpy(at, &post->msg, msg_bytes);
        at += msg_bytes;
    }
    out->head_bytes = (uint32_t)(at - to);
    link->shared.told = link->shared.taken;
    link->shared.sent++;
    link->shared.base.messages_sent++;
}

/* Send a post as one active message. @a copy: space for copies of its tensors; NULL: there are no
 * tensors. */
static bool send_copied(struct stepaf_ucx_link *link, struct stepaf_ucx_out *out,
                        struct stepaf_post *post, struct stepaf_ucx_copy *copy)
{
    uint8_t *head = copy ? copy->head : out->head;
    unsigned n = 0;

    for (unsigned i = 0; copy && i < post->n_xfer; i++)
        if (post->xfer[i].bytes)
            add_place(head, n++, &post->xfer[i]);
    compose(link, out, head, post, n);
    for (unsigned i = 0; copy && i < post->n_xfer; i++) {
        const struct stepaf_xfer *xfer = &post->xfer[i];
        if (!xfer->bytes)
            continue;
        memcpy(head + out->head_bytes, xfer->src, xfer->bytes);
        out->head_bytes += xfer->bytes;
        link->shared.base.bytes_sent += xfer->bytes;
    }
    stepaf_fabric_end_post(out->op.flight, NULL);
    out->op.copy = copy;
    return stepaf_ucx_send_am(&out->op, head, out->head_bytes, NULL, 0);
}

static struct stepaf_ucx_copy *take_copy(struct stepaf_ucx *ucx)
{
    struct stepaf_ucx_copy *copy = ucx->free_copy;

    if (copy)
        ucx->free_copy = copy->next;
    return copy;
}

/* The last tensor that has bytes. */
static unsigned last_of(const struct stepaf_post *post)
{
    unsigned last = post->n_xfer - 1u;

    while (last && !post->xfer[last].bytes)
        last--;
    return last;
}

/* Send a post with an active message for each tensor. @a is_fetched, a constant for the compiler: the
 * peer must fetch the tensors; else UCX decides. */
static inline __attribute__((always_inline)) bool send_pieces_so(struct stepaf_ucx_link *link,
                                                                 struct stepaf_ucx_out *out,
                                                                 struct stepaf_post *post,
                                                                 bool is_fetched)
{
    struct stepaf_fabric_flight *flight = link->shared.open;
    unsigned last = last_of(post);

    for (; post->at < last; post->at++) {
        const struct stepaf_xfer *xfer = &post->xfer[post->at];
        struct stepaf_ucx_head head = head_of(link, STEPAF_FABRIC_PIECE, link->shared.sent);
        if (!xfer->bytes)
            continue;
        struct stepaf_ucx_op *op = stepaf_ucx_take_op(stepaf_ucx_of(link), flight);
        if (!op)
            return false;
        head.n_places = 1;
        memcpy(op->head, &head, sizeof(head));
        add_place(op->head, 0, xfer);
        flight->pieces++;
        link->shared.base.bytes_sent += xfer->bytes;
        if (!(is_fetched
                  ? stepaf_ucx_send_fetched(op, op->head, sizeof(op->head), xfer)
                  : stepaf_ucx_send_am(op, op->head, sizeof(op->head), xfer->src, xfer->bytes)))
            return false;
    }
    const struct stepaf_xfer *xfer = &post->xfer[last];
    add_place(out->head, 0, xfer);
    compose(link, out, out->head, post, 1);
    link->shared.base.bytes_sent += xfer->bytes;
    bool good = is_fetched ? stepaf_ucx_send_fetched(&out->op, out->head, out->head_bytes, xfer)
                           : stepaf_ucx_send_am(&out->op, out->head, out->head_bytes, xfer->src,
                                                xfer->bytes);
    stepaf_fabric_end_post(flight, post);
    return good;
}

static bool send_pieces(struct stepaf_ucx_link *link, struct stepaf_ucx_out *out,
                        struct stepaf_post *post)
{
    return send_pieces_so(link, out, post, false);
}

/* Return the bytes of a post; *parts_p: how many of its tensors are not empty. */
static uint64_t weigh(const struct stepaf_post *post, unsigned *parts_p)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < post->n_xfer; i++) {
        bytes += post->xfer[i].bytes;
        *parts_p += post->xfer[i].bytes > 0;
    }
    return bytes;
}

/* Return whether the memory of all tensors is still readable, before they are copied. */
static bool can_copy(const struct stepaf_post *post)
{
    bool can = true;

    for (unsigned i = 0; i < post->n_xfer && can; i++) {
        const struct stepaf_xfer *xfer = &post->xfer[i];
        can = !xfer->bytes || !xfer->src_mem->lent || stepaf_is_readable(xfer->src, xfer->bytes);
    }
    return can;
}

/* Refuse a post of which nothing has been sent: the next post takes its number. */
static __attribute__((cold)) bool refuse_copy(struct stepaf_fabric_flight *flight,
                                              struct stepaf_post *post)
{
    struct stepaf_upcalls *up = flight->link->base.transport->up;

    stepaf_fabric_end_post(flight, NULL);
    up->refused(up, post);
    return true;
}

/* Note if UCX has completed all sends of the post immediately. */
static inline void end_at_once(struct stepaf_fabric_flight *flight, struct stepaf_post *post,
                               bool good)
{
    if (!good || flight->pending)
        return;
    flight->post = NULL;
    post->state = STEPAF_POST_SENT;
}

bool stepaf_ucx_send_post(struct stepaf_ucx_link *link, struct stepaf_post *post)
{
    struct stepaf_ucx *ucx = stepaf_ucx_of(link);
    struct stepaf_fabric_flight *flight = stepaf_fabric_begin(&link->shared, post);

    if (!flight)
        return false;
    struct stepaf_ucx_out *out = &link->out[flight - link->shared.flight];
    unsigned parts = 0;
    uint64_t bytes = weigh(post, &parts);
    if (!parts)
        return send_copied(link, out, post, NULL);
    /* A post continues in the way in which it was begun. */
    bool is_begun = flight->pieces || flight->pending || post->at;
    if (bytes <= ucx->stage && parts <= STEPAF_UCX_PLACES && ucx->free_copy && !is_begun)
        return can_copy(post) ? send_copied(link, out, post, take_copy(ucx))
                              : refuse_copy(flight, post);
    bool good = send_pieces(link, out, post);
    end_at_once(flight, post, good);
    return good;
}

bool stepaf_ucx_touches_gpu(const struct stepaf_post *post)
{
    bool does = false;

    for (unsigned i = 0; i < post->n_xfer && !does; i++) {
        const struct stepaf_xfer *xfer = &post->xfer[i];
        does = xfer->bytes && (xfer->src_mem->kind != STEPAF_MEM_HOST ||
                               ((const struct stepaf_ucx_rmem *)xfer->dst)->is_gpu);
    }
    return does;
}

struct gpu_post {
    struct stepaf_ucx_link *link;
    struct stepaf_post *post;
    bool good; /* false: there is no space now, or the link is lost */
};

static void send_gpu_post(void *arg)
{
    struct gpu_post *job = arg;
    struct stepaf_fabric_flight *flight = stepaf_fabric_begin(&job->link->shared, job->post);

    if (!flight)
        return;
    struct stepaf_ucx_out *out = &job->link->out[flight - job->link->shared.flight];
    job->good = send_pieces_so(job->link, out, job->post, true);
    end_at_once(flight, job->post, job->good);
}

bool stepaf_ucx_send_gpu_post(struct stepaf_ucx_link *link, struct stepaf_post *post)
{
    const struct stepaf_ucx *ucx = stepaf_ucx_of(link);
    struct stepaf_upcalls *up = ucx->shared.base.up;
    struct gpu_post job = {link, post, false};
    char reason[STEPAF_REASON_MAX];

    if (!ucx->gpu.device) {
        send_gpu_post(&job); /* only the peer has GPU memory */
    } else if (stepaf_gpu_inside(ucx->gpu.device, send_gpu_post, &job)) {
        snprintf(reason, sizeof(reason), "%.180s", stepaf_last_error()->text);
        up->lost(up, &link->shared.base, reason);
    }
    return job.good;
}
