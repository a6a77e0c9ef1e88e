/* SPDX-License-Identifier: Apache-2.0 */
/* Take in messages and fragments. */
#include <string.h>

#include "base/time.h"
#include "base/writable.h"
#include "transport/shm/shm.h"

/* Copy a fragment to its place. The place is untrusted input, and is checked. */
static void take_fragment(struct stepaf_shm_link *link, const struct stepaf_msg *msg)
{
    const struct stepaf_shm *shm = (const struct stepaf_shm *)link->base.transport;
    struct stepaf_upcalls *up = shm->base.up;
    uint64_t offset = msg->word[1] | (uint64_t)msg->word[2] << 32;
    uint32_t bytes = msg->word[3];
    struct stepaf_target place = {.at = NULL};

    if (bytes <= link->fragment_bytes)
        place = up->resolve(up, msg->word[0], offset, bytes);
    if (!place.at) {
        up->dropped_malformed++;
        return;
    }
    if (shm->kernel_copies && place.mem->lent && !stepaf_is_writable(place.at, bytes)) {
        stepaf_shm_give_up(link, STEPAF_SHM_OWN_UNWRITABLE, stepaf_unwritable_own);
        return;
    }
    memcpy(place.at, link->rx_staging + (size_t)(link->rx_next & link->mask) * link->fragment_bytes,
           bytes);
    link->staged = true;
}

unsigned stepaf_shm_drain(struct stepaf_shm_link *link)
{
    struct stepaf_upcalls *up = link->base.transport->up;
    unsigned n = 0;

    while (n <= link->mask && !link->base.dead && stepaf_shm_has_message(link)) {
        struct stepaf_msg msg;
        stepaf_shm_slot_read(link, &msg);
        if (__builtin_expect(msg.type >= STEPAF_MSG_TRANSPORT, 0))
            take_fragment(link, &msg);
        link->rx_next++;
        n++;
        if (link->rx_next - link->rx_told > link->mask / 2) {
            link->rx_told = link->rx_next;
            atomic_store_explicit(&link->tx_words->read, link->rx_next, memory_order_release);
        }
        if (__builtin_expect(msg.type < STEPAF_MSG_TRANSPORT, 1))
            up->deliver(up, &link->base, &msg);
    }
    return n;
}

unsigned stepaf_shm_progress(struct stepaf_transport *transport, unsigned polls)
{
    struct stepaf_shm *shm = (struct stepaf_shm *)transport;
    unsigned n = 0;

    while (true) {
        for (unsigned i = 0; i < shm->n_links; i++) {
            struct stepaf_shm_link *link = shm->links[i];
            if (stepaf_shm_has_message(link) && !link->base.dead)
                n += stepaf_shm_drain(link);
        }
        if (n || !--polls)
            return n;
        transport->up->polled = stepaf_ticks();
        stepaf_cpu_relax(); /* a loop that runs ahead of itself is slow to leave */
    }
}
