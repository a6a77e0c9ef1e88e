/* SPDX-License-Identifier: Apache-2.0 */
/* Counting what has come. In which order it comes means nothing: a message is delivered when it is the next one, and
 * as many pieces have landed as it has. */
#include <string.h>

#include "transport/fabric/link.h"

void stepaf_fabric_take_credit(struct stepaf_fabric_link *link, uint32_t taken)
{
    uint32_t more = (taken - link->credit) & STEPAF_FABRIC_NUMBER;

    if (more <= link->sent - link->credit) /* else it is older than what is known */
        link->credit += more;
}

bool stepaf_fabric_is_due(const struct stepaf_fabric_link *link, enum stepaf_fabric_kind kind,
                          uint32_t number)
{
    return link->used && ((number - link->taken) & STEPAF_FABRIC_NUMBER) < STEPAF_FABRIC_RING &&
           !(kind == STEPAF_FABRIC_MESSAGE && link->here[number % STEPAF_FABRIC_RING]);
}

void stepaf_fabric_count(struct stepaf_fabric_link *link, enum stepaf_fabric_kind kind,
                         uint32_t number)
{
    if (kind == STEPAF_FABRIC_MESSAGE)
        link->here[number % STEPAF_FABRIC_RING] = true;
    else
        link->landed[number % STEPAF_FABRIC_RING]++;
}

/* The message that is due, if it is here with all its pieces. */
static bool take_due_message(struct stepaf_fabric_link *link, struct stepaf_fabric_slot *slot_p)
{
    const struct stepaf_fabric *fabric = stepaf_fabric_of(link);
    struct stepaf_upcalls *up = fabric->base.up;
    uint32_t place = link->taken % STEPAF_FABRIC_RING;

    if (!link->here[place])
        return false;
    memcpy(slot_p, fabric->calls->slots(link) + (size_t)place * STEPAF_FABRIC_SLOT,
           sizeof(*slot_p));
    if (slot_p->token != fabric->token || slot_p->seq != link->taken ||
        slot_p->msg.n_words > STEPAF_MSG_WORDS || slot_p->msg.type >= STEPAF_MSG_TRANSPORT) {
        link->here[place] = false; /* somebody else has written: nothing has come */
        up->dropped_malformed++;
        return false;
    }
    if (link->landed[place] > slot_p->pieces) { /* which of them are its own, nobody can say */
        up->dropped_malformed++;
        up->lost(up, &link->base, "it has written more pieces than its message has");
        return false;
    }
    if (link->landed[place] < slot_p->pieces)
        return false;
    link->here[place] = false;
    link->landed[place] = 0;
    link->taken++;
    return true;
}

void stepaf_fabric_deliver(struct stepaf_fabric_link *link)
{
    const struct stepaf_fabric *fabric = stepaf_fabric_of(link);
    struct stepaf_upcalls *up = fabric->base.up;
    struct stepaf_fabric_slot slot;
    bool any = false;

    while (!link->base.dead && take_due_message(link, &slot)) {
        stepaf_fabric_take_credit(link, slot.taken);
        up->deliver(up, &link->base, &slot.msg);
        any = true;
    }
    if (any && !link->base.dead && link->taken - link->told >= STEPAF_FABRIC_RING / 2)
        (void)fabric->calls->control(link, STEPAF_FABRIC_CREDIT); /* else watch.c does it */
}
