/* SPDX-License-Identifier: Apache-2.0 */
/* Counting what has come. In which order it comes means nothing: a message is delivered when it is
 * the next one, and as many pieces have landed as it has. */
#include <string.h>

#include "base/time.h"
#include "transport/fabric/link.h"

void stepaf_fabric_refuse_message(struct stepaf_fabric_link *link, uint32_t number)
{
    struct stepaf_upcalls *up = stepaf_fabric_of(link)->base.up;

    if (stepaf_fabric_is_next(link, number) && !link->base.dead &&
        link->due[number % STEPAF_FABRIC_RING].here == STEPAF_FABRIC_AS_IMM)
        up->lost(up, &link->base, "it has sent two messages of one number");
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

/* Read the slot of the message that is due. False: somebody else has written. */
static bool read_slot(const struct stepaf_fabric_link *link, struct stepaf_fabric_slot *slot_p)
{
    const struct stepaf_fabric *fabric = stepaf_fabric_of(link);
    size_t place = link->taken % STEPAF_FABRIC_RING;

    memcpy(slot_p, fabric->calls->slots(link) + place * STEPAF_FABRIC_SLOT, sizeof(*slot_p));
    return slot_p->token == fabric->token && slot_p->seq == link->taken &&
           slot_p->msg.n_words <= STEPAF_MSG_WORDS && slot_p->msg.type < STEPAF_MSG_TRANSPORT;
}

/* The message that is due, if it is here with all its pieces; else NOT_HERE. */
static enum stepaf_fabric_here take_due_message(struct stepaf_fabric_link *link,
                                                struct stepaf_fabric_slot *slot_p)
{
    struct stepaf_upcalls *up = stepaf_fabric_of(link)->base.up;
    struct stepaf_fabric_due *due = &link->due[link->taken % STEPAF_FABRIC_RING];
    enum stepaf_fabric_here here = due->here;

    if (here == STEPAF_FABRIC_NOT_HERE)
        return here;
    if (here == STEPAF_FABRIC_IN_SLOT && !read_slot(link, slot_p)) {
        due->here = STEPAF_FABRIC_NOT_HERE; /* nothing has come */
        up->dropped_malformed++;
        return STEPAF_FABRIC_NOT_HERE;
    }
    uint32_t pieces = here == STEPAF_FABRIC_IN_SLOT ? slot_p->pieces : due->pieces;
    if (due->landed > pieces) { /* which of them are its own, nobody can say */
        up->dropped_malformed++;
        up->lost(up, &link->base, "it has written more pieces than its message has");
        return STEPAF_FABRIC_NOT_HERE;
    }
    if (due->landed < pieces)
        return STEPAF_FABRIC_NOT_HERE;
    due->here = STEPAF_FABRIC_NOT_HERE;
    due->landed = 0;
    link->taken++;
    return here;
}

void stepaf_fabric_deliver(struct stepaf_fabric_link *link)
{
    const struct stepaf_fabric *fabric = stepaf_fabric_of(link);
    struct stepaf_upcalls *up = fabric->base.up;
    enum stepaf_fabric_here here;
    struct stepaf_fabric_slot slot;
    bool any = false;

    while (!link->base.dead && (here = take_due_message(link, &slot)) != STEPAF_FABRIC_NOT_HERE) {
        any = true;
        if (here == STEPAF_FABRIC_AS_IMM) {
            if (!up->polled)
                up->polled = stepaf_ticks(); /* when it has come */
            up->deliver_imm(up, &link->base, link->due[(link->taken - 1) % STEPAF_FABRIC_RING].imm);
            continue;
        }
        stepaf_fabric_take_credit(link, slot.taken);
        up->deliver(up, &link->base, &slot.msg);
    }
    if (any && !link->base.dead && link->taken - link->told >= STEPAF_FABRIC_RING / 2)
        (void)fabric->calls->control(link, STEPAF_FABRIC_CREDIT); /* else watch.c does it */
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
