/* SPDX-License-Identifier: Apache-2.0 */
/* The commit's blobs: what each rank declares to all, and the check of it. Pure: no I/O, and
 * no blob is trusted. */
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

/* What one rank declares. Places point into the blob. */
struct stepaf_advert {
    int role;
    int world_rank;
    bool absent;     /* it is lost: nothing else is known of it */
    bool was_member; /* and was not before */
    struct stepaf_commit_will will;
    uint32_t lane;
    uint64_t node_id; /* this and the next: from init */
    bool proxies;
    stepaf_status_t status; /* of its own check before the exchange */
    char text[STEPAF_ERROR_TEXT_MAX];
    uint32_t epoch;
    bool changed;
    bool asks; /* who can write to its GPU's memory: see core/feature.h */
    uint32_t n_transports;
    struct stepaf_unpack transports;     /* name, counted bytes; each */
    struct stepaf_unpack key_bytes;      /* the keys as they were declared */
    const struct stepaf_advert *same_as; /* who declared the very same before and owns keys */
    uint32_t n_keys;
    struct stepaf_advert_key_row *keys; /* ascending by id */
    bool oom;                           /* there was no memory for them */
    uint32_t n_regions;
    struct stepaf_unpack regions; /* id, bytes, counted bytes per transport; each */
    struct stepaf_unpack streams; /* stream plans, see gpu/stream_advert.h */
    struct stepaf_unpack guests;  /* see wireup/returns_say.h */
};

/* Whether tensors of stream plans go between two ranks by way of the host. */
static inline bool stepaf_adverts_proxied(const struct stepaf_advert *one,
                                          const struct stepaf_advert *other)
{
    return one->proxies || other->proxies || one->node_id != other->node_id;
}

/* Whether a rank has stream plans: what it tells of them begins with how many there are. */
static inline bool stepaf_advert_has_streams(const struct stepaf_advert *advert)
{
    struct stepaf_unpack unpack = advert->streams;

    return stepaf_unpack_u32(&unpack) > 0;
}

/* Write this rank's advert. What stepaf_returns_pack writes may follow. */
void stepaf_advert_pack(struct stepaf_ctx *ctx, stepaf_status_t status, struct stepaf_pack *pack);

/* Read one, but for the lane. @a before: NULL, or one of a rank of the same role and lane, that
 * stays as long: mostly all ranks of a role declare the same keys, and then one copy of them is
 * read and judged. STEPAF_ERR_PROTOCOL if it is malformed, which it is to all ranks;
 * STEPAF_ERR_NO_MEMORY. Nothing is left allocated then. */
stepaf_status_t stepaf_advert_read(const void *blob, size_t bytes, int role, int world_rank,
                                   const struct stepaf_advert *before,
                                   struct stepaf_advert *advert_p);
void stepaf_advert_free(struct stepaf_advert *advert);

/* Whether one says a failure; allocates nothing. */
bool stepaf_advert_has_failed(const void *blob, size_t bytes);

/* Check all @a n adverts: the same outcome on every rank. The sentence of @a own_rank's own
 * failure is as it said it. */
stepaf_status_t stepaf_adverts_check(const struct stepaf_advert *adverts, int n, int own_rank,
                                     const struct stepaf_feature_ops *feature);

/* Find a key; NULL: not declared. */
const struct stepaf_advert_key_row *stepaf_advert_key(const struct stepaf_advert *advert,
                                                      uint64_t id);

/* Find where attention rank @a rank's pushes of @a key go at the rank that declared. False:
 * nowhere. */
bool stepaf_advert_slice(const struct stepaf_advert *advert, uint64_t key, uint32_t rank,
                         uint32_t *region_p, uint64_t *offset_p);

/* Give the counted bytes that transport @a name has in the advert. False: none. */
bool stepaf_advert_transport(const struct stepaf_advert *advert, const char *name,
                             struct stepaf_unpack *unpack_p, uint32_t *index_p);

#endif
