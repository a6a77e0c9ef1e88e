/* SPDX-License-Identifier: Apache-2.0 */
/* The commit's adverts: what each rank declares to all, and the check of it. Pure: no I/O, and no
 * blob is trusted. */
#ifndef STEPAF_WIREUP_ADVERT_H
#define STEPAF_WIREUP_ADVERT_H

#include "core/ctx.h"

/* A key as a rank declares it. */
struct stepaf_advert_key_row {
    uint64_t id;
    uint32_t direction;
    uint32_t dtype;
    uint32_t mem_kind;
    uint32_t max_bytes;
    uint32_t depth;
    uint32_t ndim;
    int64_t shape[STEPAF_MAX_DIMS];
    uint32_t n_recv_bufs;
    struct stepaf_unpack recv_bufs;
};

/* What one rank declares. The stepaf_unpack fields point into the blob. */
struct stepaf_advert {
    int role;
    int world_rank;
    bool absent;     /* lost: nothing else is known of it */
    bool was_member; /* absent, but was a member */
    struct stepaf_commit_will will;
    uint32_t lane;
    uint64_t node_id; /* node_id and proxies are known from init */
    bool proxies;
    stepaf_status_t status; /* of the rank's own check before the exchange */
    char text[STEPAF_ERROR_TEXT_MAX];
    uint32_t epoch;
    bool changed;
    bool asks; /* asks who can write to its GPU's memory: see core/feature.h */
    uint32_t n_transports;
    struct stepaf_unpack transports; /* each: name, counted bytes */
    struct stepaf_unpack key_bytes;  /* the keys as declared */
    /* an earlier advert with identical keys, which owns them */
    const struct stepaf_advert *same_as;
    uint32_t n_keys;
    struct stepaf_advert_key_row *keys; /* ascending by id */
    bool oom;                           /* no memory for the keys */
    uint32_t n_regions;
    struct stepaf_unpack regions; /* each: id, bytes, counted bytes per transport */
    struct stepaf_unpack streams; /* stream plans, see gpu/stream_advert.h */
    struct stepaf_unpack guests;  /* see wireup/returns_say.h */
};

/* Return whether tensors of stream plans travel between two ranks through the host. */
static inline bool stepaf_adverts_proxied(const struct stepaf_advert *one,
                                          const struct stepaf_advert *other)
{
    return one->proxies || other->proxies || one->node_id != other->node_id;
}

/* Return whether a rank has stream plans. Its stream advert begins with their number. */
static inline bool stepaf_advert_has_streams(const struct stepaf_advert *advert)
{
    struct stepaf_unpack unpack = advert->streams;

    return stepaf_unpack_u32(&unpack) > 0;
}

/* Write this rank's advert. The output of stepaf_returns_pack may follow. */
void stepaf_advert_pack(struct stepaf_ctx *ctx, stepaf_status_t status, struct stepaf_pack *pack);

/* Read an advert, without the lane. @a before: NULL, or an advert of a rank of the same role and
 * lane that lives as long: mostly all ranks of a role declare the same keys, and then only one copy
 * of them is read and judged. STEPAF_ERR_PROTOCOL: malformed, for all ranks alike;
 * STEPAF_ERR_NO_MEMORY. After an error nothing is left allocated. */
stepaf_status_t stepaf_advert_read(const void *blob, size_t bytes, int role, int world_rank,
                                   const struct stepaf_advert *before,
                                   struct stepaf_advert *advert_p);
void stepaf_advert_free(struct stepaf_advert *advert);

/* Return whether an advert reports a failure. Allocates nothing. */
bool stepaf_advert_has_failed(const void *blob, size_t bytes);

/* Check all @a n adverts, with the same outcome at every rank. The text of @a own_rank's own
 * failure is as it was set. */
stepaf_status_t stepaf_adverts_check(const struct stepaf_advert *adverts, int n, int own_rank,
                                     const struct stepaf_feature_ops *feature);

/* Find a key. Return NULL if it is not declared. */
const struct stepaf_advert_key_row *stepaf_advert_key(const struct stepaf_advert *advert,
                                                      uint64_t id);

/* Find where attention rank @a rank's pushes of @a key go at the declaring rank. Return false if
 * nowhere. */
bool stepaf_advert_slice(const struct stepaf_advert *advert, uint64_t key, uint32_t rank,
                         uint32_t *region_p, uint64_t *offset_p);

/* Return the counted bytes that transport @a name has in the advert. Return false if there are
 * none. */
bool stepaf_advert_transport(const struct stepaf_advert *advert, const char *name,
                             struct stepaf_unpack *unpack_p, uint32_t *index_p);

#endif
