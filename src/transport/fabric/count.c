/* SPDX-License-Identifier: Apache-2.0 */
/* Counting of arrivals. Their order has no meaning: a message is delivered when it is the next one,
 * and as many pieces have landed as belong to it. */
#include <string.h>

#include "base/time.h"
#include "transport/fabric/link.h"

void stepaf_fabric_refuse_message(struct stepaf_fabric_link *link, uint32_t number)
{
    struct stepaf_upcalls *up = stepaf_fabric_of(link)->base.up;

    if (stepaf_fabric_is_next(link, number) && !link->base.dead &&
        link->due[number % STEPAF_FABRIC_RING].here == STEPAF_FABRIC_AS_IMM)
        up->lost(up, &link->base, "it has sent two messages with the same number");
}

void stepaf_fabric_count(struct stepaf_fabric_link *link, enum stepaf_fabric_kind kind,
                         uint32_t number)
{
    struct stepaf_fabric_due *due = &link->due[number % STEPAF_FABRIC_RING];

    if (kind == STEPAF_FABRIC_MESSAGE)
        due->here = STEPAF_FABRIC_IN_SLOT;
    else
        due->landed++;
}

/* Read the slot of the message that is due. Returns false if something else has been written
 * there. */
static bool read_slot(const struct stepaf_fabric_link *link, struct stepaf_fabric_slot *slot_p)
{
    const struct stepaf_fabric *fabric = stepaf_fabric_of(link);
    size_t place = link->taken % STEPAF_FABRIC_RING;

    memcpy(slot_p, fabric->calls->slots(link) + place * STEPAF_FABRIC_SLOT, sizeof(*slot_p));
    return slot_p->token == fabric->token && slot_p->seq == link->taken &&
           slot_p->msg.n_words <= STEPAF_MSG_WORDS && slot_p->msg.type < STEPAF_MSG_TRANSPORT;
}

/* Make the next message due, once the message that is due has all its pieces. */
static inline void end_due(struct stepaf_fabric_link *link, struct stepaf_fabric_due *due)
{
    due->here = STEPAF_FABRIC_NOT_HERE;
    due->landed = 0;
    link->taken++;
}

/* Report the last rail of the message that has been taken and is about to be delivered. */
static __attribute__((noinline, cold)) void tell_last(struct stepaf_fabric_link *link,
                                                      const struct stepaf_msg *msg, uint32_t imm)
{
    const struct stepaf_fabric_calls *calls = stepaf_fabric_of(link)->calls;

    if (calls->tell_last_rail)
        calls->tell_last_rail(link, link->taken - 1, msg, imm);
}

/* Deliver the message that is due, of which a part is here. Returns false if it is incomplete or
 * invalid. */
static __attribute__((noinline)) bool deliver_slot(struct stepaf_fabric_link *link,
                                                   struct stepaf_fabric_due *due)
{
    struct stepaf_upcalls *up = stepaf_fabric_of(link)->base.up;
    uint32_t pieces = due->pieces;
    struct stepaf_fabric_slot slot;

    if (due->here == STEPAF_FABRIC_IN_SLOT) {
        if (!read_slot(link, &slot)) {
            due->here = STEPAF_FABRIC_NOT_HERE; /* nothing has arrived */
            up->dropped_malformed++;
            return false;
        }
        pieces = slot.pieces;
    }
    if (due->landed > pieces) { /* nobody can say which pieces are the message's own */
        up->dropped_malformed++;
        up->lost(up, &link->base, "it has written more pieces than its message has");
        return false;
    }
    if (due->here != STEPAF_FABRIC_IN_SLOT || due->landed < pieces)
        return false;
    end_due(link, due);
    stepaf_fabric_take_credit(link, slot.taken);
    if (up->held_up)
        tell_last(link, &slot.msg, 0);
    up->deliver(up, &link->base, &slot.msg);
    return true;
}

/* Deliver the message that is due. Returns false if it is not complete. */
static inline bool deliver_next(struct stepaf_fabric_link *link)
{
    struct stepaf_fabric_due *due = &link->due[link->taken % STEPAF_FABRIC_RING];
    struct stepaf_upcalls *up = stepaf_fabric_of(link)->base.up;

    if (due->here == STEPAF_FABRIC_NOT_HERE)
        return false;
    if (due->here != STEPAF_FABRIC_AS_IMM || due->landed != due->pieces)
        return deliver_slot(link, due);
    end_due(link, due);
    if (!up->polled)
        up->polled = stepaf_ticks(); /* when the message has arrived */
    if (__builtin_expect(up->held_up != NULL, 0))
        tell_last(link, NULL, due->imm);
    up->deliver_imm(up, &link->base, due->imm);
    return true;
}

void stepaf_fabric_deliver(struct stepaf_fabric_link *link)
{
    while (!link->base.dead && deliver_next(link))
        ;
    /* If there is no space for the credit, the next delivery sends it, or watch.c. */
    if (link->taken - link->told >= STEPAF_FABRIC_RING / 2 && link->used && !link->base.dead)
        (void)stepaf_fabric_of(link)->calls->control(link, STEPAF_FABRIC_CREDIT);
}

unsigned stepaf_fabric_deliver_all(struct stepaf_fabric *fabric)
{
    unsigned n = 0;

    for (uint32_t p = 0; p < fabric->n_peers; p++) {
        struct stepaf_fabric_link *link = stepaf_fabric_link(fabric, p);
        uint32_t before = link->taken;
        stepaf_fabric_deliver(link);
        n += link->taken - before;
    }
    return n;
}
