/* SPDX-License-Identifier: Apache-2.0 */
/* Links in the public interface: queries, and the map of the job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/link.h>

#include "api/boot_wait.h"
#include "api/fill.h"
#include "api/handles.h"
#include "core/clock_keep.h"
#include "core/feature.h"
#include "core/wait.h"
#include "map/map.h"

_Static_assert(sizeof(((stepaf_link_info_t *)0)->transport) >= STEPAF_LINK_NAME &&
                   sizeof(((stepaf_link_info_t *)0)->address) >= STEPAF_LINK_ADDRESS &&
                   sizeof(((stepaf_link_info_t *)0)->refused) >= STEPAF_REASON_MAX,
               "what is shown is shown whole");

stepaf_status_t stepaf_link_query(stepaf_context_h handle, int rank, stepaf_link_info_t *info_p)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    int p = stepaf_find_peer(ctx, rank);
    if (p < 0 || !info_p) {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                  "rank %d is not a peer of this rank, or info_p is NULL", rank);
        goto out;
    }
    const struct stepaf_peer *peer = &ctx->peers[p];
    const struct stepaf_link *link = peer->link;
    stepaf_link_info_t info = {
        .world_rank = peer->who.world_rank,
        .is_lost = peer->lost,
        .bytes_sent = link ? link->bytes_sent : 0,
        .messages_sent = link ? link->messages_sent : 0,
        .bytes_received = peer->bytes_received,
        .clock_bound_ns = stepaf_clock_bound_ns(ctx, peer),
    };
    snprintf(info.transport, sizeof(info.transport), "%s", link ? link->name : "-");
    snprintf(info.address, sizeof(info.address), "%s", link ? link->address : "");
    snprintf(info.refused, sizeof(info.refused), "%s", peer->refused);
    snprintf(info.streams, sizeof(info.streams), "%s", ctx->feature->way(peer));
    status = stepaf_fill(info_p, "stepaf_link_info_t", STEPAF_FIRST_LINK_INFO, &info, sizeof(info));
out:
    stepaf_leave(ctx);
    return status;
}

/* Return a copy of the name that stays until finalize. There is one copy per kind of link. */
static const char *keep_name(struct stepaf_ctx *ctx, const char *name)
{
    struct stepaf_kept_name *kept = ctx->net.names;

    while (kept && strcmp(kept->name, name) != 0)
        kept = kept->next;
    if (kept)
        return kept->name;
    kept = malloc(sizeof(*kept));
    if (!kept)
        return NULL;
    snprintf(kept->name, sizeof(kept->name), "%s", name);
    kept->next = ctx->net.names;
    ctx->net.names = kept;
    return kept->name;
}

const char *stepaf_transport_name(stepaf_context_h handle, int rank)
{
    const char *name = NULL;
    struct stepaf_ctx *ctx;

    if (stepaf_enter_context(handle, &ctx))
        return NULL;
    int p = stepaf_find_peer(ctx, rank);
    if (p >= 0)
        name = keep_name(ctx, ctx->peers[p].link ? ctx->peers[p].link->name : "-");
    stepaf_leave(ctx);
    return name;
}

stepaf_status_t stepaf_map_check(stepaf_context_h handle, int64_t timeout_us, char **text_p)
{
    struct stepaf_map_part op_peer;
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);
    char *text = NULL;

    if (status)
        return status;
    if (ctx->state != STEPAF_CTX_OPEN || !ctx->epoch) {
        stepaf_leave(ctx);
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_NONE, "no commit, or a failed one");
    }
    stepaf_boot_wait_begin(ctx);
    int64_t left_us =
        stepaf_boot_wait_flush(ctx, stepaf_timeout_us(ctx, timeout_us), STEPAF_PHASE_NONE);
    stepaf_map_part_make(ctx, true, &op_peer);
    stepaf_lock_leave(&ctx->lock);
    status = left_us < 0 ? STEPAF_ERR_CANCELED
                         : stepaf_map_exchange(ctx, &op_peer, true, left_us, text_p ? &text : NULL);
    status = stepaf_boot_wait_end(status, STEPAF_PHASE_NONE);
    stepaf_map_part_free(&op_peer);
    if (text_p && (!status || status == STEPAF_ERR_TRANSPORT))
        *text_p = text;
    else
        free(text);
    stepaf_lock_enter(&ctx->lock);
    return stepaf_leave_wait(ctx, status);
}
