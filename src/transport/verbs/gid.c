/* SPDX-License-Identifier: Apache-2.0 */
/* Choose the entry of the GID table by which a RoCE port is reached. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "transport/verbs/rail.h"

enum { GIDS = UINT8_MAX + 1 /* that a queue pair can name; some tables are longer */ };

/* Return how good an entry of the GID table is; 0: unusable. Kernels list link-local addresses
 * first. */
static int gid_rank(const struct ibv_gid_entry *entry)
{
    static const union ibv_gid none;
    int rank = entry->gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 1;

    if (!memcmp(&entry->gid, &none, sizeof(none)))
        return 0;
    if (stepaf_verbs_is_ipv4(&entry->gid))
        return rank + 2;
    return rank + !stepaf_verbs_is_link_local(&entry->gid);
}

static stepaf_status_t bad_gid(const struct stepaf_verbs *verbs,
                               const struct stepaf_verbs_rail *rail, const char *what)
{
    return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_COMMIT,
                            "STEPAF_VERBS_GID_INDEX=%.20s: %s %s",
                            verbs->base.up->env->verbs_gid_index, rail->name, what);
}

static void take_entry(struct stepaf_verbs_rail *rail, const struct ibv_gid_entry *entry,
                       uint32_t index)
{
    rail->port.gid = entry->gid;
    rail->port.gid_index = index;
    rail->v2 = entry->gid_type == IBV_GID_TYPE_ROCE_V2;
}

/* Test whether packets can be sent with this entry. Return 0 or errno. A table also has entries of
 * other network namespaces, and of interfaces that no longer exist. */
static int try_gid(const struct stepaf_verbs *verbs, const struct stepaf_verbs_rail *rail,
                   const struct ibv_gid_entry *entry, uint32_t index)
{
    struct ibv_ah_attr attr = {
        .is_global = 1,
        .port_num = rail->port.number,
        .grh = {.dgid = entry->gid, .sgid_index = (uint8_t)index, .hop_limit = 64},
    };
    int error = verbs->provider->try_ah(rail->pd, &attr);

    return error == EOPNOTSUPP || error == ENOSYS ? 0 : error; /* the provider cannot tell */
}

/* Take the entry that the setting names. */
static stepaf_status_t take_gid(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail,
                                uint32_t n_gids)
{
    const char *text = verbs->base.up->env->verbs_gid_index;
    struct ibv_gid_entry entry;
    unsigned long index = strtoul(text, NULL, 10); /* only digits */
    char what[80];

    snprintf(what, sizeof(what), "has GIDs 0 to %u", n_gids - 1);
    if (index >= n_gids)
        return bad_gid(verbs, rail, what);
    if (verbs->provider->query_gid(rail->context, rail->port.number, (uint32_t)index, &entry) ||
        !gid_rank(&entry))
        return bad_gid(verbs, rail, "has none at this index");
    int error = try_gid(verbs, rail, &entry, (uint32_t)index);
    snprintf(what, sizeof(what), "cannot send with it: %.50s", strerror(error));
    if (error)
        return bad_gid(verbs, rail, what);
    take_entry(rail, &entry, (uint32_t)index);
    return STEPAF_OK;
}

/* Find the best entry that has not been tried; return 0 if there is none. */
static int find_best(const struct stepaf_verbs *verbs, const struct stepaf_verbs_rail *rail,
                     uint32_t n_gids, const bool *tried, struct ibv_gid_entry *best_p,
                     uint32_t *index_p)
{
    struct ibv_gid_entry entry;
    int best = 0;

    for (uint32_t i = 0; i < n_gids; i++)
        if (!tried[i] && !verbs->provider->query_gid(rail->context, rail->port.number, i, &entry) &&
            gid_rank(&entry) > best) {
            best = gid_rank(&entry);
            *best_p = entry;
            *index_p = i;
        }
    return best;
}

stepaf_status_t stepaf_verbs_gid_choose(const struct stepaf_verbs *verbs,
                                        struct stepaf_verbs_rail *rail,
                                        const struct ibv_port_attr *port)
{
    uint32_t n_gids = port->gid_tbl_len < GIDS ? (uint32_t)port->gid_tbl_len : GIDS, index;
    bool tried[GIDS] = {false};
    struct ibv_gid_entry entry;
    int error = 0;

    if (verbs->base.up->env->verbs_gid_index[0])
        return take_gid(verbs, rail, n_gids);
    while (find_best(verbs, rail, n_gids, tried, &entry, &index)) {
        int its = try_gid(verbs, rail, &entry, index);
        if (!its) {
            take_entry(rail, &entry, index);
            return STEPAF_OK;
        }
        tried[index] = true;
        error = error ? error : its;
    }
    if (error)
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                "verbs: %s cannot send with any of its GIDs: %s", rail->name,
                                strerror(error));
    return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                            "verbs: %s has no GID: its network interface has no address",
                            rail->name);
}

const char *stepaf_verbs_gid_change(const struct stepaf_verbs *verbs,
                                    const struct stepaf_verbs_rail *rail)
{
    struct ibv_gid_entry entry;

    if (rail->port.link_layer != IBV_LINK_LAYER_ETHERNET || rail->cm)
        return NULL;
    if (verbs->provider->query_gid(rail->context, rail->port.number, rail->port.gid_index,
                                   &entry) ||
        !gid_rank(&entry))
        return "the GID that peers send to is gone";
    return memcmp(&entry.gid, &rail->port.gid, sizeof(rail->port.gid))
               ? "the GID that peers send to has changed"
               : NULL;
}
