/* SPDX-License-Identifier: Apache-2.0 */
/* Sending. A post is its writes, each with the number of its message, and the message, which goes
 * into a slot or into the data of the last of these writes. */
#include <string.h>

#include "transport/ofi/ofi.h"

enum { RING_TRIES = 8 }; /* in one call */

static uint32_t imm_make(const struct stepaf_ofi_link *link, enum stepaf_fabric_kind kind,
                         uint32_t number)
{
    return (uint32_t)kind << STEPAF_OFI_KIND_SHIFT |
           link->shared.sender_at_peer << STEPAF_OFI_SENDER_SHIFT | (number & STEPAF_FABRIC_NUMBER);
}

/* What the last write of a post carries, if it carries the message as well. */
struct finish {
    unsigned xfer; /* the tensor with that write; beyond the last: none */
    uint32_t imm;
    bool is_said;
};

static inline uint64_t finish_data(const struct stepaf_ofi_link *link, uint32_t pieces,
                                   uint32_t imm)
{
    uint32_t low = pieces << STEPAF_OFI_PIECES_SHIFT | (link->shared.sent & STEPAF_OFI_LOW_NUMBER);

    return (uint64_t)imm << STEPAF_OFI_IMM_SHIFT | imm_make(link, STEPAF_FABRIC_MESSAGE, low);
}

/* Handle a rejected write. The doorbell must be rung for earlier writes that carried FI_MORE:
 * progress does that. If the error is permanent, the link is lost, but what the peer has sent
 * before is delivered first: if a poll has set that aside, the next progress delivers it, and the
 * post is offered again. */
static __attribute__((noinline, cold)) void refuse_write(struct stepaf_ofi_link *link,
                                                         const struct stepaf_ofi_rail *rail,
                                                         int error)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)link->shared.base.transport;

    ofi->is_due = ofi->is_due || rail->more_run;
    if (error == FI_EAGAIN)
        return;
    if (!ofi->has_aside || ofi->shared.asked == &link->shared)
        stepaf_fabric_lose(&link->shared, error);
}

/* Issue one write. Returns false if there is no space for it now, or the link is lost. @a more:
 * another one follows immediately, whose doorbell serves both; but the last write for which there
 * is space rings itself, as does one after more_max writes with FI_MORE. */
static inline __attribute__((always_inline)) bool ofi_write(
    struct stepaf_fabric_flight *flight, unsigned path, const void *source, size_t bytes,
    const struct stepaf_ofi_registration *own, uint64_t address, uint64_t key, uint64_t data,
    bool more)
{
    struct stepaf_ofi_link *link = (struct stepaf_ofi_link *)flight->link;
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)link->shared.base.transport;
    struct stepaf_ofi_rail *rail = &ofi->rails[path];
    struct stepaf_ofi_op *op = ofi->free_op;
    struct iovec iov = {(void *)(uintptr_t)source, bytes};
    struct fi_rma_iov there = {address, bytes, key};
    void *desc = fi_mr_desc(own->rails[path].mr);
    struct fi_msg_rma msg = {.msg_iov = &iov,
                             .desc = &desc,
                             .iov_count = 1,
                             .addr = link->paths[path].to,
                             .rma_iov = &there,
                             .rma_iov_count = 1,
                             .context = op,
                             .data = stepaf_ofi_hide(data, link->shared.token, ofi->is_wide)};

    if (!op)
        return false;
    more = more && op->next && rail->more_run < ofi->more_max;
    ssize_t error = rail->rma->writemsg(rail->ep, &msg,
                                        FI_REMOTE_CQ_DATA | FI_COMPLETION | (more ? FI_MORE : 0));
    if (error) {
        refuse_write(link, rail, (int)-error);
        return false;
    }
    rail->more_run = more ? rail->more_run + 1 : 0;
    ofi->free_op = op->next;
    op->flight = flight;
    flight->pending++;
    return true;
}

/* Write to the peer's slot for this rank from the copy of that slot in this rank's memory. */
static bool write_slot(struct stepaf_fabric_flight *flight, unsigned path, uint32_t place,
                       size_t bytes, uint64_t data)
{
    const struct stepaf_ofi_link *link = (const struct stepaf_ofi_link *)flight->link;

    return ofi_write(flight, path, stepaf_ofi_slot(link, true, place), bytes,
                     link->slots->mem.registration[0], link->ring + place * STEPAF_FABRIC_SLOT,
                     link->paths[path].ring_key, data, false);
}

static bool write_control(struct stepaf_ofi_link *link, unsigned path, uint32_t data)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)link->shared.base.transport;

    stepaf_ofi_slot(link, true, STEPAF_FABRIC_RING)->token = link->shared.token;
    bool is_lent = stepaf_ofi_lend(ofi, &link->shared, true);
    bool done = write_slot(&link->shared.control, path, STEPAF_FABRIC_RING,
                           sizeof(link->shared.token), data);
    if (is_lent)
        stepaf_ofi_take_back(ofi);
    return done;
}

/* Send a hello over each path, with the path's number: a link is proven if data get through over
 * each of them. All are tried, since libfabric connects with the first write. */
static bool say_hello_by_paths(struct stepaf_ofi_link *link)
{
    uint8_t all = stepaf_ofi_all_paths(link);

    for (unsigned path = 0; path < link->n_paths; path++)
        if (!(link->said & 1u << path) &&
            write_control(link, path, imm_make(link, STEPAF_FABRIC_HELLO, path)))
            link->said |= (uint8_t)(1u << path);
    if (link->said != all)
        return false;
    link->said = 0;
    return true;
}

/* Credits, which probe idle links, use the paths round-robin, so that a silent path shows. */
bool stepaf_ofi_control(struct stepaf_fabric_link *shared, enum stepaf_fabric_kind kind)
{
    struct stepaf_ofi_link *link = (struct stepaf_ofi_link *)shared;
    uint32_t taken = link->shared.taken;

    if (kind == STEPAF_FABRIC_HELLO)
        return say_hello_by_paths(link);
    if (!write_control(link, link->turn, imm_make(link, kind, taken)))
        return false;
    link->turn = link->turn + 1 < link->n_paths ? link->turn + 1 : 0;
    link->shared.told = taken;
    return true;
}

/* Ring the doorbell of a rail, which is one for all peers. A lost peer is only used to ring. */
static void ring_rail(struct stepaf_ofi *ofi, unsigned r, bool by_lost)
{
    /* If the provider has no space, it has none for the others either. */
    unsigned tries = RING_TRIES;

    for (uint32_t i = 0; i < ofi->shared.n_senders && ofi->rails[r].more_run && tries; i++) {
        struct stepaf_ofi_link *link = stepaf_ofi_sender(ofi, i);
        bool is_live = link->shared.used && !link->shared.base.dead;
        uint32_t taken = link->shared.taken;
        if (link->shared.proof.state != STEPAF_FABRIC_PROVEN || r >= link->n_paths ||
            is_live == by_lost)
            continue;
        if (write_control(link, r, imm_make(link, STEPAF_FABRIC_CREDIT, taken)))
            link->shared.told = taken;
        tries--;
    }
}

bool stepaf_ofi_ring(struct stepaf_ofi *ofi)
{
    bool is_owed = false;

    for (unsigned r = 0; r < ofi->n_rails; r++) {
        ring_rail(ofi, r, false);
        ring_rail(ofi, r, true);
        is_owed |= ofi->rails[r].more_run > 0;
    }
    return !is_owed;
}

/* Return the path of a post, except for the shares of large tensors: so one doorbell on one path
 * serves the post. */
static inline unsigned path_of(const struct stepaf_ofi_link *link)
{
    return __builtin_expect(link->n_paths > 1, 0) ? link->shared.sent % link->n_paths : 0;
}

/* Return how many bytes of a tensor go over one path. */
static uint64_t share_of(const struct stepaf_ofi_link *link, uint64_t bytes)
{
    const struct stepaf_ofi *ofi = (const struct stepaf_ofi *)link->shared.base.transport;
    uint64_t n = bytes / ofi->share_min;

    if (n < 2)
        return bytes;
    n = n < link->n_paths ? n : link->n_paths;
    return ((bytes + n - 1) / n + STEPAF_OFI_SHARE_ALIGN - 1) & -(uint64_t)STEPAF_OFI_SHARE_ALIGN;
}

/* Send post->xfer[post->at] from post->at_offset on, in shares of @a share bytes, each over the
 * next path. Returns false if not all of it is sent. @a first_p: the first write of this call. A
 * write that was rejected before is offered without FI_MORE, so that nothing waits for a write that
 * may not come soon. The first share uses the post's path, without FI_MORE, so it rings for the
 * writes before it. */
static inline __attribute__((always_inline)) bool send_shares(struct stepaf_ofi_link *link,
                                                              struct stepaf_post *post,
                                                              struct finish *finish, bool *first_p,
                                                              unsigned first_path, uint64_t share)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)link->shared.base.transport;
    const struct stepaf_xfer *xfer = &post->xfer[post->at];
    const struct stepaf_ofi_rmem *there = (const struct stepaf_ofi_rmem *)xfer->dst;

    while (post->at_offset < xfer->bytes) {
        uint64_t left = xfer->bytes - post->at_offset, most = ofi->piece_max;
        unsigned path = first_path;
        if (share) {
            uint64_t in_share = share - post->at_offset % share;
            path = (unsigned)(path + post->at_offset / share) % link->n_paths;
            most = in_share < most ? in_share : most;
        }
        uint32_t bytes = (uint32_t)(left < most ? left : most);
        bool says_all = post->at == finish->xfer && bytes == left &&
                        link->shared.open->pieces <= STEPAF_OFI_PIECES_MAX;
        if (!ofi_write(link->shared.open, path, (const uint8_t *)xfer->src + post->at_offset, bytes,
                       xfer->src_mem->registration[ofi->shared.base.index],
                       there->address + xfer->dst_offset + post->at_offset, there->keys[path],
                       says_all ? finish_data(link, link->shared.open->pieces, finish->imm)
                                : imm_make(link, STEPAF_FABRIC_PIECE, link->shared.sent),
                       !*first_p && !says_all && !share))
            return false;
        *first_p = false;
        finish->is_said = says_all;
        link->shared.open->pieces += !says_all;
        link->shared.base.bytes_sent += bytes;
        link->paths[path].bytes_sent += bytes;
        post->at_offset += bytes;
    }
    return true;
}

/* Send over a link with several paths. */
static __attribute__((noinline)) bool send_by_paths(struct stepaf_ofi_link *link,
                                                    struct stepaf_post *post, struct finish *finish,
                                                    bool *first_p)
{
    uint32_t bytes = post->xfer[post->at].bytes;
    uint64_t share = share_of(link, bytes);

    return send_shares(link, post, finish, first_p, path_of(link), share < bytes ? share : 0);
}

static bool ofi_send_tensor(struct stepaf_ofi_link *link, struct stepaf_post *post,
                            struct finish *finish, bool *first_p)
{
    return __builtin_expect(link->n_paths > 1, 0) ? send_by_paths(link, post, finish, first_p)
                                                  : send_shares(link, post, finish, first_p, 0, 0);
}

static bool ofi_send_message(struct stepaf_ofi_link *link, const struct stepaf_post *post)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)link->shared.base.transport;
    uint32_t place = link->shared.sent % STEPAF_FABRIC_RING, taken = link->shared.taken;
    struct stepaf_fabric_slot *slot = stepaf_ofi_slot(link, true, place);

    *slot = (struct stepaf_fabric_slot){
        link->shared.token, link->shared.sent, taken, link->shared.open->pieces, 0, post->msg};
    if (!write_slot(link->shared.open, path_of(link), place, sizeof(*slot),
                    (ofi->is_wide ? stepaf_ofi_in_slot : 0) |
                        imm_make(link, STEPAF_FABRIC_MESSAGE, link->shared.sent)))
        return false;
    link->shared.told = taken;
    return true;
}

/* Return whether the last write can carry the message as well; it carries no credit then. */
static struct finish finish_of(const struct stepaf_ofi_link *link, const struct stepaf_post *post)
{
    const struct stepaf_ofi *ofi = (const struct stepaf_ofi *)link->shared.base.transport;
    struct finish finish = {.xfer = UINT32_MAX};
    unsigned last = post->n_xfer;

    if (!post->is_short || !ofi->is_wide || !stepaf_fabric_can_omit_credit(&link->shared))
        return finish;
    while (last && !post->xfer[last - 1].bytes)
        last--;
    finish.imm = post->imm;
    if (last)
        finish.xfer = last - 1;
    return finish;
}

/* Returns false if there is no space now. */
static bool ofi_send_post(struct stepaf_ofi_link *link, struct stepaf_post *post)
{
    bool first = link->shared.open != NULL; /* rejected before: see send_shares */
    struct stepaf_fabric_flight *flight = stepaf_fabric_begin(&link->shared, post);

    if (!flight)
        return false;
    struct finish finish = finish_of(link, post);
    for (; post->at < post->n_xfer; post->at++, post->at_offset = 0)
        if (!ofi_send_tensor(link, post, &finish, &first))
            return false;
    if (!finish.is_said && !ofi_send_message(link, post))
        return false;
    link->shared.sent++;
    link->shared.base.messages_sent++;
    stepaf_fabric_end_post(flight, finish.is_said || flight->pieces ? post : NULL);
    return true;
}

/* Send the most common post: one tensor, in one write that carries the message as well. Returns
 * false if the post is not of that kind, or there is no space now, or the link is lost. */
static inline bool ofi_post_quick(struct stepaf_ofi_link *link, struct stepaf_post *post)
{
    struct stepaf_fabric_link *shared = &link->shared;
    const struct stepaf_ofi *ofi = (const struct stepaf_ofi *)shared->base.transport;
    struct stepaf_fabric_flight *flight = &shared->flight[shared->sent % STEPAF_FABRIC_RING];
    const struct stepaf_xfer *xfer = post->xfer;

    if (!ofi->is_wide || !post->is_short || post->n_xfer != 1 || shared->open || flight->pending ||
        shared->sent - shared->credit >= STEPAF_FABRIC_RING ||
        !stepaf_fabric_can_omit_credit(shared) || !xfer->bytes || xfer->bytes > ofi->piece_max ||
        (link->n_paths > 1 && share_of(link, xfer->bytes) < xfer->bytes))
        return false;
    const struct stepaf_ofi_rmem *there = (const struct stepaf_ofi_rmem *)xfer->dst;
    unsigned path = path_of(link);
    if (!ofi_write(flight, path, xfer->src, xfer->bytes,
                   xfer->src_mem->registration[ofi->shared.base.index],
                   there->address + xfer->dst_offset, there->keys[path],
                   finish_data(link, 0, post->imm), false))
        return false;
    shared->sent++;
    shared->base.messages_sent++;
    shared->base.bytes_sent += xfer->bytes;
    link->paths[path].bytes_sent += xfer->bytes;
    flight->post = post;
    post->state = STEPAF_POST_POSTED;
    return true;
}

/* Queue a post that could not be sent, or not completely. If peers hold all ops, links that hold
 * few of them get ops of the reserve, for one write at a time. Returns whether the post is
 * QUEUED. */
static __attribute__((noinline, cold)) unsigned queue_post(struct stepaf_ofi_link *link,
                                                           struct stepaf_post *post)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)link->shared.base.transport;

    post->state = STEPAF_POST_QUEUED;
    if (!stepaf_ofi_lend(ofi, &link->shared, false))
        return 1;
    unsigned n_queued = stepaf_ofi_post(&post, 1);
    stepaf_ofi_take_back(ofi);
    return n_queued;
}

unsigned stepaf_ofi_post(struct stepaf_post *const *posts, unsigned n)
{
    unsigned n_queued = 0;

    for (unsigned i = 0; i < n; i++) {
        struct stepaf_ofi_link *link = (struct stepaf_ofi_link *)posts[i]->link;
        posts[i]->state = STEPAF_POST_SENT; /* also if nobody will read the post */
        if (link->shared.base.dead || ofi_post_quick(link, posts[i]))
            continue;
        if (link->shared.base.dead || ofi_send_post(link, posts[i]) || link->shared.base.dead)
            continue;
        n_queued += queue_post(link, posts[i]);
    }
    return n_queued;
}
