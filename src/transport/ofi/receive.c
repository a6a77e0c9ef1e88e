/* SPDX-License-Identifier: Apache-2.0 */
/* Taking in completions: of own writes, and of those of peers, which are counted. In which order they come
 * means nothing. */
#include <string.h>

#include "base/fd.h"
#include "base/time.h"
#include "transport/ofi/ofi.h"

enum { ENTRIES = 16 };

static bool take_credit(struct stepaf_ofi_link *link, uint32_t taken)
{
    uint32_t more = (taken - link->credit) & STEPAF_OFI_NUMBER;

    if (more <= link->sent - link->credit) /* else it is older than what is known */
        link->credit += more;
    return true;
}

/* Deliver, in the order of their numbers, the messages that are here with all their writes. */
static unsigned deliver_next(struct stepaf_ofi *ofi, struct stepaf_ofi_link *link)
{
    struct stepaf_upcalls *up = ofi->base.up;
    unsigned n = 0;

    while (!link->base.dead) {
        uint32_t place = link->taken % STEPAF_OFI_RING;
        struct stepaf_ofi_slot slot;
        if (!link->here[place])
            break;
        memcpy(&slot, stepaf_ofi_slot(ofi, false, link->base.peer, place), sizeof(slot));
        if (slot.token != ofi->token || slot.seq != link->taken ||
            slot.msg.n_words > STEPAF_MSG_WORDS || slot.msg.type >= STEPAF_MSG_TRANSPORT) {
            link->here[place] = false; /* somebody else has written: nothing has come */
            up->dropped_malformed++;
            break;
        }
        if (link->landed[place] > slot.pieces) { /* which of them are its own, nobody can say */
            up->dropped_malformed++;
            up->lost(up, &link->base, "it has written more pieces than its message has");
            break;
        }
        if (link->landed[place] < slot.pieces)
            break;
        link->here[place] = false;
        link->landed[place] = 0;
        link->taken++;
        (void)take_credit(link, slot.taken);
        up->deliver(up, &link->base, &slot.msg);
        n++;
    }
    return n;
}

/* A write of a peer, or of whoever claims to be one. False: it makes no sense. */
static bool take_write(struct stepaf_ofi *ofi, uint64_t data)
{
    uint32_t kind = (uint32_t)data >> STEPAF_OFI_KIND_SHIFT;
    uint32_t peer = (uint32_t)data >> STEPAF_OFI_PEER_SHIFT & (STEPAF_OFI_PEERS - 1);
    uint32_t number = (uint32_t)data & STEPAF_OFI_NUMBER;

    if (data > UINT32_MAX || peer >= ofi->n_peers)
        return false;
    struct stepaf_ofi_link *link = &ofi->links[peer];
    uint32_t place = number % STEPAF_OFI_RING;
    link->heard++;
    if (kind == STEPAF_OFI_CREDIT || kind == STEPAF_OFI_HELLO) {
        if (stepaf_ofi_slot(ofi, false, peer, STEPAF_OFI_RING)->token != ofi->token)
            return false;
        if (kind == STEPAF_OFI_HELLO)
            link->proof.here = true;
        return kind == STEPAF_OFI_HELLO || take_credit(link, number);
    }
    if (!link->used || ((number - link->taken) & STEPAF_OFI_NUMBER) >= STEPAF_OFI_RING)
        return false;
    if (kind == STEPAF_OFI_MESSAGE && link->here[place])
        return false;
    if (kind == STEPAF_OFI_MESSAGE)
        link->here[place] = true;
    else
        link->landed[place]++;
    if (deliver_next(ofi, link) && !link->base.dead &&
        link->taken - link->told >= STEPAF_OFI_RING / 2)
        (void)stepaf_ofi_control(link, STEPAF_OFI_CREDIT); /* else watch.c does it */
    return true;
}

static struct stepaf_ofi_flight *end_op(struct stepaf_ofi *ofi, struct stepaf_ofi_op *op)
{
    struct stepaf_ofi_flight *flight = op->flight;

    op->next = ofi->free_op;
    ofi->free_op = op;
    flight->pending--;
    flight->link->heard++;
    if (!flight->pending && flight->post) {
        if (!flight->link->base.dead)
            flight->post->state = STEPAF_POST_SENT;
        flight->post = NULL;
    }
    return flight;
}

static bool is_op(const struct stepaf_ofi *ofi, const void *context)
{
    const struct stepaf_ofi_op *op = context;
    return op >= ofi->ops && op < ofi->ops + STEPAF_OFI_OPS;
}

/* Provider sockets says of own writes, too, that they have carried data. */
static bool is_of_peer(const struct fi_cq_data_entry *entry)
{
    return entry->flags & FI_REMOTE_WRITE ||
           (entry->flags & FI_REMOTE_CQ_DATA && !(entry->flags & FI_WRITE));
}

/* False: there was none. */
static bool take_error(struct stepaf_ofi *ofi)
{
    struct fi_cq_err_entry entry = {0};

    if (fi_cq_readerr(ofi->f.cq, &entry, 0) != 1)
        return false;
    struct stepaf_ofi_op *op = entry.op_context;
    if (!is_op(ofi, op)) {
        ofi->base.up->dropped_malformed++;
        return true;
    }
    struct stepaf_ofi_link *link = op->flight->link;
    op->flight->post = NULL; /* it has not been sent */
    (void)end_op(ofi, op);
    stepaf_ofi_lose(link, entry.err);
    return true;
}

/* The queue itself is of no use any more. */
static void lose_all(struct stepaf_ofi *ofi, int error)
{
    for (uint32_t p = 0; p < ofi->n_peers; p++)
        stepaf_ofi_lose(&ofi->links[p], error);
}

/* Read once. Returns how much has come, but for what only links have to do with: a rank that hears nothing else is
 * one that waits in vain, and looks for dead peers. */
static unsigned take_in(struct stepaf_ofi *ofi)
{
    struct fi_cq_data_entry entries[ENTRIES];
    ssize_t n = fi_cq_read(ofi->f.cq, entries, ENTRIES);
    unsigned counted = 0;

    if (n == -FI_EAVAIL)
        return take_error(ofi);
    if (n < 0 && n != -FI_EAGAIN)
        lose_all(ofi, (int)-n);
    for (ssize_t i = 0; i < n; i++) {
        if (is_of_peer(&entries[i])) {
            ofi->base.up->dropped_malformed += !take_write(ofi, entries[i].data);
            counted += entries[i].data >> STEPAF_OFI_KIND_SHIFT < STEPAF_OFI_CREDIT;
        } else if (is_op(ofi, entries[i].op_context)) {
            const struct stepaf_ofi_flight *flight = end_op(ofi, entries[i].op_context);
            counted += flight != &flight->link->control;
        }
    }
    return counted;
}

/* In the first commit libfabric connects, and accepts connections, in here. */
static unsigned take_in_guarded(struct stepaf_ofi *ofi)
{
    stepaf_fd_begin();
    unsigned n = take_in(ofi);
    (void)stepaf_fd_end(-1);
    return n;
}

unsigned stepaf_ofi_progress(struct stepaf_transport *transport, unsigned polls)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    unsigned n;

    if (__builtin_expect(!ofi->settled, 0))
        return take_in_guarded(ofi);
    while (!(n = take_in(ofi)) && --polls)
        transport->up->polled = stepaf_ticks();
    return n;
}
