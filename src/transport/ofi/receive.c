/* SPDX-License-Identifier: Apache-2.0 */
/* Taking in completions: of this rank's writes, and of peers' writes, which are counted. Their
 * order has no meaning. */
#include <string.h>

#include "base/fd.h"
#include "base/time.h"
#include "transport/ofi/ofi.h"

enum { ENTRIES = 16, ASIDE_READS = 64 };

void stepaf_ofi_tell_last_rail(struct stepaf_fabric_link *shared, uint32_t number,
                               const struct stepaf_msg *msg, uint32_t imm)
{
    const struct stepaf_ofi_link *link = (const struct stepaf_ofi_link *)shared;
    const struct stepaf_ofi_came *came = &link->came[number % STEPAF_FABRIC_RING];
    struct stepaf_upcalls *up = shared->base.transport->up;

    if (came->number == number && came->before)
        up->held_up(up, &shared->base, msg, imm, came->rail, came->last - came->before);
}

/* Record that a part of a message has arrived over a rail. */
static __attribute__((noinline, cold)) void note_came(struct stepaf_ofi_link *link, unsigned rail,
                                                      uint32_t number)
{
    struct stepaf_ofi_came *came = &link->came[number % STEPAF_FABRIC_RING];
    uint64_t now = stepaf_ticks();

    if (came->number != number || !came->last)
        *came = (struct stepaf_ofi_came){.number = number, .rail = (uint8_t)rail};
    else if (rail != came->rail)
        came->before = came->last;
    came->rail = (uint8_t)rail;
    came->last = now;
}

static inline void set_aside(struct stepaf_ofi *ofi)
{
    ofi->is_due = true;
    ofi->has_aside = true;
}

/* Deliver, or set aside, after a piece or a message of the link was counted: of message @a number,
 * over a rail. */
static inline __attribute__((always_inline)) void follow(struct stepaf_ofi_link *link,
                                                         unsigned rail, uint32_t number,
                                                         bool delivers)
{
    if (__builtin_expect(link->shared.base.transport->up->held_up != NULL, 0))
        note_came(link, rail, number);
    if (delivers)
        stepaf_fabric_deliver(&link->shared);
    else
        set_aside((struct stepaf_ofi *)link->shared.base.transport);
}

/* Return the full number of a message that is due, from the bits of @a mask in @a told. */
static inline uint32_t whole_number(const struct stepaf_ofi_link *link, uint32_t told,
                                    uint32_t mask)
{
    return link->shared.taken + ((told - link->shared.taken) & mask);
}

/* Take a message that is in the data as a whole. */
static inline __attribute__((always_inline)) bool take_imm(struct stepaf_ofi_link *link,
                                                           unsigned rail, uint64_t data,
                                                           bool delivers)
{
    uint32_t number = whole_number(link, (uint32_t)data, STEPAF_OFI_LOW_NUMBER);
    uint32_t pieces = (uint32_t)data >> STEPAF_OFI_PIECES_SHIFT & STEPAF_OFI_PIECES_MASK;

    if (pieces > STEPAF_OFI_PIECES_MAX)
        return false;
    if (!stepaf_fabric_is_due(&link->shared, STEPAF_FABRIC_MESSAGE, number)) {
        stepaf_fabric_refuse_message(&link->shared, number);
        return false;
    }
    link->shared.heard++;
    stepaf_fabric_count_imm(&link->shared, number, pieces,
                            (uint32_t)(data >> STEPAF_OFI_IMM_SHIFT));
    follow(link, rail, number, delivers);
    return true;
}

/* Take a CREDIT or HELLO. Returns false if it is invalid. */
static __attribute__((noinline)) bool take_control(struct stepaf_ofi_link *link, uint32_t kind,
                                                   uint32_t number)
{
    if (stepaf_ofi_slot(link, false, STEPAF_FABRIC_RING)->token !=
        stepaf_fabric_of(&link->shared)->token)
        return false;
    if (kind == STEPAF_FABRIC_HELLO)
        return stepaf_ofi_take_hello(link, number);
    stepaf_fabric_take_credit(&link->shared, number);
    return true;
}

/* Take a write of a peer, or of a process that claims to be one. Returns false if the write is
 * invalid. */
static inline __attribute__((always_inline)) bool take_write(struct stepaf_ofi *ofi, unsigned rail,
                                                             uint64_t data, bool delivers)
{
    uint32_t kind = (uint32_t)data >> STEPAF_OFI_KIND_SHIFT;
    uint32_t sender = (uint32_t)data >> STEPAF_OFI_SENDER_SHIFT & (STEPAF_FABRIC_PEERS - 1);
    uint32_t number = (uint32_t)data & STEPAF_FABRIC_NUMBER;

    if (sender >= ofi->shared.n_senders)
        return false;
    struct stepaf_ofi_link *link = stepaf_ofi_sender(ofi, sender);
    bool is_wide = ofi->is_wide && kind == STEPAF_FABRIC_MESSAGE;
    if (is_wide && data < stepaf_ofi_in_slot)
        return take_imm(link, rail, data, delivers);
    if (data >> STEPAF_OFI_IMM_SHIFT != (is_wide ? stepaf_ofi_in_slot >> STEPAF_OFI_IMM_SHIFT : 0))
        return false;
    link->shared.heard++;
    if (kind == STEPAF_FABRIC_CREDIT || kind == STEPAF_FABRIC_HELLO)
        return take_control(link, kind, number);
    if (!stepaf_fabric_is_due(&link->shared, kind, number)) {
        if (kind == STEPAF_FABRIC_MESSAGE)
            stepaf_fabric_refuse_message(&link->shared, number);
        return false;
    }
    stepaf_fabric_count(&link->shared, kind, number);
    follow(link, rail, whole_number(link, number, STEPAF_FABRIC_NUMBER), delivers);
    return true;
}

static inline struct stepaf_fabric_flight *end_op(struct stepaf_ofi *ofi, struct stepaf_ofi_op *op)
{
    struct stepaf_fabric_flight *flight = op->flight;

    op->next = ofi->free_op;
    ofi->free_op = op;
    stepaf_fabric_end_send(flight);
    return flight;
}

/* Complete an op of the reserve, or one added later, if @a context is an op at all. */
static __attribute__((noinline, cold)) unsigned end_other_op(struct stepaf_ofi *ofi, void *context)
{
    struct stepaf_ofi_op *op = context;

    if (!stepaf_ofi_is_op(ofi, op))
        return 0;
    struct stepaf_fabric_flight *flight = op->flight;
    stepaf_ofi_free_op(ofi, op);
    stepaf_fabric_end_send(flight);
    return flight != &flight->link->control;
}

/* Provider sockets reports also for own writes that they have transferred data. */
static bool is_of_peer(const struct fi_cq_data_entry *entry)
{
    return entry->flags & FI_REMOTE_WRITE ||
           (entry->flags & FI_REMOTE_CQ_DATA && !(entry->flags & FI_WRITE));
}

/* Take an error from a rail's queue. Returns false if there was none. */
static bool take_error(struct stepaf_ofi *ofi, const struct stepaf_ofi_rail *rail)
{
    struct fi_cq_err_entry entry = {0};

    if (fi_cq_readerr(rail->cq, &entry, 0) != 1)
        return false;
    struct stepaf_ofi_op *op = entry.op_context;
    if (!stepaf_ofi_is_op(ofi, op)) {
        ofi->shared.base.up->dropped_malformed++;
        return true;
    }
    struct stepaf_fabric_link *link = op->flight->link;
    op->flight->post = NULL; /* the post has not been sent */
    (void)end_other_op(ofi, op);
    stepaf_fabric_deliver(link); /* what was set aside */
    stepaf_fabric_lose(link, entry.err);
    return true;
}

/* Lose all links: the queue itself can no longer be used. */
static void lose_all(struct stepaf_ofi *ofi, int error)
{
    for (uint32_t p = 0; p < ofi->shared.n_peers; p++)
        stepaf_fabric_lose(ofi->shared.links[p], error);
}

/* Read a rail's queue once. */
static inline __attribute__((always_inline)) unsigned read_queue(struct stepaf_ofi *ofi,
                                                                 const struct stepaf_ofi_rail *rail,
                                                                 bool delivers)
{
    struct fi_cq_data_entry entries[ENTRIES];
    ssize_t n = fi_cq_read(rail->cq, entries, ENTRIES);
    unsigned counted = 0;

    if (n == -FI_EAVAIL)
        return take_error(ofi, rail);
    if (n < 0 && n != -FI_EAGAIN)
        lose_all(ofi, (int)-n);
    for (ssize_t i = 0; i < n; i++) {
        if (is_of_peer(&entries[i])) {
            uint64_t data = stepaf_ofi_hide(entries[i].data, ofi->shared.token, ofi->is_wide);
            ofi->shared.base.up->dropped_malformed +=
                !take_write(ofi, (unsigned)(rail - ofi->rails), data, delivers);
            counted += (uint32_t)data >> STEPAF_OFI_KIND_SHIFT < STEPAF_FABRIC_CREDIT;
        } else if (stepaf_ofi_is_usual_op(ofi, entries[i].op_context)) {
            const struct stepaf_fabric_flight *flight = end_op(ofi, entries[i].op_context);
            counted += flight != &flight->link->control;
        } else {
            counted += end_other_op(ofi, entries[i].op_context);
        }
    }
    return counted;
}

/* Read each queue once. Returns how much has arrived, except what concerns only links: a rank that
 * receives nothing else waits in vain, and checks for dead peers. */
static inline __attribute__((always_inline)) unsigned read_queues(struct stepaf_ofi *ofi,
                                                                  bool delivers)
{
    unsigned counted = read_queue(ofi, &ofi->rails[0], delivers);

    for (unsigned r = 1; __builtin_expect(r < ofi->n_rails, 0); r++)
        counted += read_queue(ofi, &ofi->rails[r], delivers);
    return counted;
}

static unsigned take_in(struct stepaf_ofi *ofi)
{
    return read_queues(ofi, true);
}

void stepaf_ofi_set_aside(struct stepaf_fabric *fabric)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)fabric;
    unsigned left = ASIDE_READS;

    if (!ofi->settled)
        stepaf_fd_begin();
    while (read_queues(ofi, false) && --left)
        ;
    if (!ofi->settled)
        (void)stepaf_fd_end(-1);
}

/* Take in completions in the first commit, in which libfabric connects, and accepts connections, in
 * here. */
static unsigned take_in_guarded(struct stepaf_ofi *ofi)
{
    stepaf_fd_begin();
    unsigned n = take_in(ofi);
    (void)stepaf_fd_end(-1);
    return n;
}

/* Deliver what was set aside, ring the doorbell if due, and read once. */
static __attribute__((noinline, cold)) unsigned ofi_do_due(struct stepaf_ofi *ofi)
{
    unsigned n = stepaf_fabric_deliver_all(&ofi->shared);

    ofi->has_aside = false;
    if (!ofi->settled)
        return n + take_in_guarded(ofi);
    ofi->is_due = !stepaf_ofi_ring(ofi);
    return n + take_in(ofi);
}

unsigned stepaf_ofi_progress(struct stepaf_transport *transport, unsigned polls)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    unsigned n;

    if (__builtin_expect(ofi->is_due, 0))
        return ofi_do_due(ofi);
    while (!(n = take_in(ofi)) && --polls) {
        stepaf_cpu_relax(); /* a loop that runs ahead speculatively is slow to leave */
        transport->up->polled = stepaf_ticks();
    }
    return n;
}
