/* SPDX-License-Identifier: Apache-2.0 */
/* The map of a running job: what this rank knows of its links, and the exchange of parts. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "boot/member_net.h"
#include "core/ctx.h"
#include "core/feature.h"
#include "core/members.h"
#include "core/members_gather.h"
#include "map/map.h"

/* Check that the transport has written what the core has handed to it. Posts that wait for space
 * are not written yet, and what a lost peer's link has carried is unknown. */
static void check_bytes_written(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer,
                                struct stepaf_map_part *part)
{
    if (part->status || peer->lost || !stepaf_list_empty(&peer->queue) ||
        peer->bytes_sent == peer->link->bytes_sent)
        return;
    part->status = STEPAF_ERR_TRANSPORT;
    snprintf(part->text, sizeof(part->text),
             "%s rank %d to " STEPAF_WHO_FORMAT ": %s has written %llu of %llu bytes",
             stepaf_is_attention(ctx) ? "attention" : "FFN",
             ctx->job.ranks[ctx->job.boot.rank].rank, STEPAF_WHO_ARGS(peer->who), peer->link->name,
             (unsigned long long)peer->link->bytes_sent, (unsigned long long)peer->bytes_sent);
}

/* Name the ways to one peer: the link's, and that of streams. Writes by streams themselves are not
 * counted. */
static void name_ways(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer,
                      struct stepaf_map_way *way)
{
    const char *streams = ctx->feature->way(peer);

    snprintf(way->name, sizeof(way->name), "%.*s%s%s",
             (int)(sizeof(way->name) - 1 - strlen(streams) - (*streams != '\0')), peer->link->name,
             *streams ? "," : "", streams);
    snprintf(way->refused, sizeof(way->refused), "%s", peer->refused);
}

/* Add the link to one peer. Return false if out of memory. */
static bool add_peer(const struct stepaf_ctx *ctx, const struct stepaf_peer *peer, bool with_bytes,
                     struct stepaf_map_part *part)
{
    const struct stepaf_link *link = peer->link;
    struct stepaf_map_way way;

    if (!link || peer->is_out)
        return stepaf_map_part_add(part, NULL, 0, 0);
    if (with_bytes)
        check_bytes_written(ctx, peer, part);
    if (link->address[0] && !part->address[0])
        snprintf(part->address, sizeof(part->address), "%s", link->address);
    name_ways(ctx, peer, &way);
    return stepaf_map_part_add(part, &way, with_bytes ? link->bytes_sent : 0,
                               with_bytes ? link->messages_sent : 0);
}

static bool find_devices(struct stepaf_ctx *ctx)
{
    if (ctx->job.devices)
        return true;
    ctx->job.devices = calloc(1, sizeof(*ctx->job.devices));
    if (ctx->job.devices)
        stepaf_topo_devices(NULL, ctx->job.topo.binding, ctx->job.devices->gpu,
                            ctx->job.devices->nic, sizeof(ctx->job.devices->gpu));
    return ctx->job.devices != NULL;
}

/* Name the devices that a transport uses, in place of the near ones. */
static void name_nics(const struct stepaf_ctx *ctx, struct stepaf_map_part *part)
{
    char text[STEPAF_REASON_MAX];

    for (unsigned t = 0; t < ctx->net.n_transports; t++) {
        ctx->net.transports[t]->ops->describe(ctx->net.transports[t], text);
        if (text[0])
            snprintf(part->nic, sizeof(part->nic), "%.*s", (int)sizeof(part->nic) - 1, text);
    }
}

void stepaf_map_part_make(struct stepaf_ctx *ctx, bool with_bytes, struct stepaf_map_part *part_p)
{
    int others = stepaf_is_attention(ctx) ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;
    struct stepaf_map_part part = {.node_id = ctx->job.topo.node_id};
    uint32_t p = 0;
    bool good = find_devices(ctx);

    if (good)
        snprintf(part.gpu, sizeof(part.gpu), "%s", ctx->job.devices->gpu);
    if (good)
        snprintf(part.nic, sizeof(part.nic), "%s", ctx->job.devices->nic);
    name_nics(ctx, &part);
    snprintf(part.host, sizeof(part.host), "%s", ctx->job.topo.host);
    snprintf(part.cores, sizeof(part.cores), "%s", ctx->job.topo.binding);
    for (int rank = 0; rank < ctx->job.group_size[others] && good; rank++) {
        if (p < ctx->n_peers && ctx->peers[p].who.rank == rank)
            good = add_peer(ctx, &ctx->peers[p++], with_bytes, &part);
        else
            good = stepaf_map_part_add(&part, NULL, 0, 0); /* not a peer of this rank */
    }
    if (!good) {
        part.status = STEPAF_ERR_NO_MEMORY;
        snprintf(part.text, sizeof(part.text), "out of memory");
    }
    *part_p = part;
}

/* Return the failure of the first rank that has one: it is that of all. */
static stepaf_status_t check_verdicts(const struct stepaf_ctx *ctx, const uint8_t *all,
                                      const size_t *offsets)
{
    char text[STEPAF_ERROR_TEXT_MAX];

    for (int r = 0; r < ctx->job.boot.size; r++) {
        stepaf_status_t its;
        if (!ctx->job.members.is[r])
            continue;
        stepaf_status_t status =
            stepaf_map_verdict_read(all + offsets[r], offsets[r + 1] - offsets[r], &its, text);
        if (status)
            return status;
        if (its)
            return stepaf_error_set(its, STEPAF_PHASE_NONE, "%s", text);
    }
    return STEPAF_OK;
}

/* Note what this rank knows of another one's fate. */
static void note_map_fate(const struct stepaf_ctx *ctx, uint32_t rank, struct stepaf_map_part *part)
{
    const struct stepaf_member_net *net = ctx->job.members.net;

    uint32_t n_after_first = net ? stepaf_member_net_consensus(net)->lives[rank] - 1 : 0;
    bool is_later = (int)rank >= ctx->job.n_started; /* it had no process at first */

    part->n_returns = stepaf_members_n_returns(ctx, rank);
    if (!ctx->job.members.is[rank] && is_later && !n_after_first)
        part->fate = STEPAF_MAP_VACANT;
    else if (!ctx->job.members.is[rank])
        part->fate =
            net && stepaf_member_net_has_left(net, (int)rank) ? STEPAF_MAP_LEFT : STEPAF_MAP_OUT;
    else if (part->n_returns)
        part->fate = STEPAF_MAP_RETURNED;
    else if (is_later)
        part->fate = STEPAF_MAP_JOINED;
}

/* At world rank 0, or the first member: make the text from all parts. */
static stepaf_status_t format_map(const struct stepaf_ctx *ctx, bool with_bytes, const uint8_t *all,
                                  const size_t *offsets, char **text_p)
{
    uint32_t size = (uint32_t)ctx->job.boot.size;
    stepaf_status_t status = STEPAF_OK;
    uint8_t *roles = malloc(size);
    struct stepaf_map map = {0};
    char *text = NULL;

    for (uint32_t r = 0; roles && r < size; r++)
        roles[r] = ctx->job.ranks[r].role;
    if (!roles || !stepaf_map_open(&map, size, roles))
        goto out;
    map.epoch = ctx->epoch;
    map.with_bytes = with_bytes;
    for (uint32_t r = 0; r < size && !status; r++) {
        note_map_fate(ctx, r, &map.parts[r]);
        if (!stepaf_map_is_out(&map.parts[r]))
            status = stepaf_map_part_read(all + offsets[r], offsets[r + 1] - offsets[r],
                                          map.n_of[!map.parts[r].role], &map.parts[r]);
    }
    if (!status)
        text = stepaf_map_text(&map);
out:
    stepaf_map_close(&map);
    free(roles);
    if (!status && !text)
        status = stepaf_error_no_memory(STEPAF_PHASE_NONE);
    if (!status)
        *text_p = text;
    return status;
}

static bool is_first_member(const struct stepaf_ctx *ctx)
{
    int first = 0;

    while (!ctx->job.members.is[first])
        first++;
    return first == ctx->job.boot.rank;
}

stepaf_status_t stepaf_map_exchange(struct stepaf_ctx *ctx, const struct stepaf_map_part *part,
                                    bool with_bytes, int64_t timeout_us, char **text_p)
{
    size_t *offsets = calloc((size_t)ctx->job.boot.size + 1, sizeof(*offsets));
    struct stepaf_pack pack = {0};
    stepaf_status_t status = STEPAF_OK, drawn = STEPAF_OK;
    void *all = NULL;

    stepaf_map_part_pack(part, &pack);
    if (!offsets || pack.failed)
        status = stepaf_error_no_memory(STEPAF_PHASE_NONE);
    timeout_us = timeout_us > 0 ? timeout_us : 0;
    if (!status && stepaf_members_gather_is_due(ctx))
        status = stepaf_members_gather(ctx, STEPAF_GATHER_MAP, pack.data, pack.bytes, &all, offsets,
                                       timeout_us);
    else if (!status)
        status = ctx->job.boot.allgather(ctx->job.boot.self, pack.data, pack.bytes, &all, offsets,
                                         timeout_us);
    if (!status) {
        status = check_verdicts(ctx, all, offsets);
        if ((!status || status == STEPAF_ERR_TRANSPORT) && text_p && is_first_member(ctx)) {
            stepaf_error_t kept = *stepaf_last_error();
            drawn = format_map(ctx, with_bytes, all, offsets, text_p);
            if (status)
                stepaf_error_raise(&kept);
        }
    }
    free(all);
    free(offsets);
    free(pack.data);
    return status ? status : drawn;
}

stepaf_status_t stepaf_map_print(struct stepaf_ctx *ctx, int64_t timeout_us)
{
    struct stepaf_map_part part;
    stepaf_status_t status;
    char *text = NULL;

    stepaf_map_part_make(ctx, false, &part);
    status = stepaf_map_exchange(ctx, &part, false, timeout_us, &text);
    stepaf_map_part_free(&part);
    if (text)
        stepaf_log_print(text);
    free(text);
    if (status == STEPAF_ERR_PROTOCOL || status == STEPAF_ERR_NO_MEMORY) {
        stepaf_log_warn("STEPAF_PRINT_MAP: no map: %s", stepaf_last_error()->text);
        return STEPAF_OK;
    }
    return status;
}
