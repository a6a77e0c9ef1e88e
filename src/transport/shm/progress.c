/* SPDX-License-Identifier: Apache-2.0 */
/* Taking in: messages and fragments. */
#include <string.h>

#include "transport/shm/shm.h"

/* Put a fragment where it belongs. Its place comes from outside, and is checked. */
static void take_fragment(struct stepaf_shm_link *link, const struct stepaf_msg *msg)
{
    struct stepaf_host *host = link->base.transport->host;
    uint64_t offset = msg->word[1] | (uint64_t)msg->word[2] << 32;
    uint32_t bytes = msg->word[3];
    uint8_t *place = NULL;

    if (bytes <= link->fragment_bytes)
        place = host->resolve(host, msg->word[0], offset, bytes);
    if (!place) {
        host->dropped_malformed++;
        return;
    }
    memcpy(place, link->rx_staging + (size_t)(link->rx_next & link->mask) * link->fragment_bytes,
           bytes);
    link->staged = true;
}

unsigned stepaf_shm_drain(struct stepaf_shm_link *link)
{
    struct stepaf_host *host = link->base.transport->host;
    unsigned n = 0;

    while (n <= link->mask) {
        struct stepaf_shm_slot *slot = &link->rx[link->rx_next & link->mask];
        if (atomic_load_explicit(&slot->ready, memory_order_acquire) != link->rx_next + 1)
            break;
        struct stepaf_msg msg = slot->msg;
        if (__builtin_expect(msg.type >= STEPAF_MSG_TRANSPORT, 0))
            take_fragment(link, &msg);
        link->rx_next++;
        n++;
        if (link->rx_next - link->rx_told > link->mask / 2) {
            link->rx_told = link->rx_next;
            atomic_store_explicit(link->rx_ack, link->rx_next, memory_order_release);
        }
        if (__builtin_expect(msg.type < STEPAF_MSG_TRANSPORT, 1))
            host->deliver(host, &link->base, &msg);
    }
    return n;
}

unsigned stepaf_shm_progress(struct stepaf_transport *transport)
{
    struct stepaf_shm *shm = (struct stepaf_shm *)transport;
    unsigned n = 0;

    for (unsigned i = 0; i < shm->n_links; i++)
        if (!shm->links[i]->base.dead)
            n += stepaf_shm_drain(shm->links[i]);
    return n;
}
