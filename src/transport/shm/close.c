/* SPDX-License-Identifier: Apache-2.0 */
/* Close this rank's pages to a peer, for a reason that the peer can read. */
#include "transport/shm/shm.h"

void stepaf_shm_close(struct stepaf_shm_link *link, enum stepaf_shm_closed why)
{
    uint32_t open = STEPAF_SHM_OPEN;

    (void)atomic_compare_exchange_strong(&link->rx_words->closed, &open,
                                         stepaf_shm_closed_to(link->pid, why));
}

void stepaf_shm_give_up(struct stepaf_shm_link *link, enum stepaf_shm_closed why,
                        const char *reason)
{
    struct stepaf_upcalls *up = link->base.transport->up;

    stepaf_shm_close(link, why);
    up->lost(up, &link->base, reason);
}
