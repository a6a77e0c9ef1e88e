/* SPDX-License-Identifier: Apache-2.0 */
/* End what is in flight: before memory is released, and when the transport is closed. */
#include "base/time.h"
#include "transport/ucx/ucx.h"

enum { CLOSE_MS = 1000, FORCE_MS = 750 /* after that, endpoints are closed by force */ };

/* Return whether something is in flight. For a lost or disconnected peer, that is a close, send or
 * fetch that UCX has not ended; for a live peer, a send that is not acknowledged. */
static bool has_under_way(const struct stepaf_ucx_link *link)
{
    if (!link->shared.base.dead && link->ep)
        return stepaf_fabric_link_has_pending(&link->shared);
    return (link->ep && link->can_force) || stepaf_ucx_is_ending(link);
}

/* A lost peer never acknowledges anything, so sends to it are ended here. */
bool stepaf_ucx_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p)
{
    struct stepaf_ucx *ucx = (struct stepaf_ucx *)transport;

    (void)begin;
    stepaf_ucx_end_lost(ucx);
    (void)stepaf_ucx_progress(transport, 1);
    for (uint32_t p = 0; p < ucx->shared.n_peers; p++) {
        if (!has_under_way(&ucx->links[p]))
            continue;
        *peer_p = p;
        return false;
    }
    return true;
}

/* End the sends to lost peers if other peers need their ops. */
void stepaf_ucx_check_peers(struct stepaf_transport *transport)
{
    struct stepaf_ucx *ucx = (struct stepaf_ucx *)transport;

    stepaf_fabric_check_peers(transport);
    if (!ucx->free_op)
        stepaf_ucx_end_lost(ucx);
}

/* Return whether UCX still fetches, moves GPU memory or closes by force, once all endpoints are
 * closed. */
static bool are_closing(const struct stepaf_ucx *ucx)
{
    bool has = stepaf_ucx_moves_gpu(ucx);

    for (uint32_t p = 0; p < ucx->shared.n_peers && !has; p++)
        has = stepaf_ucx_is_ending(&ucx->links[p]);
    return has;
}

/* Poll until @a end, or until nothing is left to wait for: flushes, closes and sends; with @a all,
 * also what lost peers have in flight. */
static void wait_for_end(struct stepaf_ucx *ucx, int64_t end, bool all)
{
    while (
        (ucx->n_ending || stepaf_fabric_has_pending(&ucx->shared) || (all && are_closing(ucx))) &&
        !ucx->gpu.is_gone && stepaf_monotonic_ns() < end)
        (void)stepaf_ucx_progress(&ucx->shared.base, 1);
}

/* Silent peers may use up the time of the first two waits. The third wait has time of its own, and
 * depends on no peer. */
bool stepaf_ucx_close_links(struct stepaf_ucx *ucx)
{
    int64_t now = stepaf_monotonic_ns(), end = now + CLOSE_MS * 1000000LL;
    int64_t force = now + FORCE_MS * 1000000LL;

    for (uint32_t p = 0; p < ucx->shared.n_peers; p++)
        stepaf_fabric_disconnect(&ucx->links[p].shared); /* from here on, nothing is delivered */
    wait_for_end(ucx, force, false);
    for (uint32_t p = 0; p < ucx->shared.n_peers; p++)
        stepaf_ucx_flush(&ucx->links[p]);
    wait_for_end(ucx, force, false);
    for (uint32_t p = 0; p < ucx->shared.n_peers; p++)
        stepaf_ucx_disconnect(&ucx->links[p].shared.base);
    wait_for_end(ucx, end, true);
    return !ucx->n_ending && !stepaf_ucx_moves_gpu(ucx) && !ucx->gpu.is_gone;
}
