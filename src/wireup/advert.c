/* SPDX-License-Identifier: Apache-2.0 */
/* Adverts: writing this rank's, reading those of others, and looking things up in them. */
#include "wireup/advert.h"
#include "core/feature.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/region.h"

#include <stdlib.h>
#include <string.h>

enum { DECLARE_MAGIC = 0x53544144 };

enum { CHANGED = 1 << 0, ASKS = 1 << 1, LEAVES_LOST = 1 << 2, ADMITS = 1 << 3, LEAVES = 1 << 4 };

static void pack_ranks(const struct stepaf_recv_buf *recv_buf, struct stepaf_pack *pack)
{
    bool consecutive = true;

    for (uint32_t i = 1; i < recv_buf->n_ranks; i++)
        consecutive = consecutive && recv_buf->ranks[i] == recv_buf->ranks[0] + i;
    stepaf_pack_u32(pack, recv_buf->n_ranks);
    stepaf_pack_u32(pack, consecutive);
    for (uint32_t i = 0; i < (consecutive ? 1 : recv_buf->n_ranks); i++)
        stepaf_pack_u32(pack, recv_buf->ranks[i]);
}

static void pack_recv_buf(const struct stepaf_recv_buf *recv_buf, struct stepaf_pack *pack)
{
    stepaf_pack_u32(pack, recv_buf->region->mem.id);
    stepaf_pack_u64(pack, recv_buf->offset);
    stepaf_pack_u64(pack, recv_buf->stride);
    pack_ranks(recv_buf, pack);
}

static void pack_key(const struct stepaf_key *key, struct stepaf_pack *pack)
{
    uint32_t n_recv_bufs = 0;

    stepaf_pack_u64(pack, key->id);
    stepaf_pack_u32(pack, key->direction);
    stepaf_pack_u32(pack, key->dtype);
    stepaf_pack_u32(pack, key->mem_kind);
    stepaf_pack_u32(pack, key->max_bytes);
    stepaf_pack_u32(pack, key->depth);
    stepaf_pack_u32(pack, (uint32_t)key->ndim);
    for (int i = 0; i < key->ndim; i++)
        stepaf_pack_u64(pack, (uint64_t)key->shape[i]);
    for (struct stepaf_list *node = key->recv_bufs.next; node != &key->recv_bufs; node = node->next)
        n_recv_bufs++;
    stepaf_pack_u32(pack, n_recv_bufs + (key->proxy_recv != NULL));
    if (key->proxy_recv) /* first: a reader stops at the first match */
        pack_recv_buf(key->proxy_recv, pack);
    for (struct stepaf_list *node = key->recv_bufs.next; node != &key->recv_bufs; node = node->next)
        pack_recv_buf(stepaf_container_of(node, struct stepaf_recv_buf, node), pack);
}

/* Pack all keys, preceded by their length. */
static void pack_keys(const struct stepaf_ctx *ctx, struct stepaf_pack *pack)
{
    struct stepaf_pack own = {0};

    stepaf_pack_u32(&own, ctx->memory.n_keys);
    for (uint32_t i = 0; i < ctx->memory.n_keys; i++)
        pack_key(ctx->memory.keys[i], &own);
    stepaf_pack_u64(pack, own.bytes);
    stepaf_pack_bytes(pack, own.data, own.bytes);
    pack->failed = pack->failed || own.failed;
    free(own.data);
}

/* Append what a transport packs for @a mem, or its address if NULL, preceded by the length. */
static void pack_counted(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack)
{
    struct stepaf_pack own = {0};

    if (mem)
        transport->ops->pack_mem(transport, mem, &own);
    else
        transport->ops->pack_address(transport, &own);
    stepaf_pack_u32(pack, (uint32_t)own.bytes);
    stepaf_pack_bytes(pack, own.data, own.bytes);
    pack->failed = pack->failed || own.failed;
    free(own.data);
}

/* Return whether a region is offered to peers. Attention ranks offer all memory, since a later plan
 * may pull into any of it. FFN ranks offer the memory they receive into. GPU memory is offered only
 * if links may have to carry it. */
static bool is_offered(const struct stepaf_ctx *ctx, const struct stepaf_region *region)
{
    if (region->hidden || (region->mem.kind != STEPAF_MEM_HOST && !region->linked))
        return false;
    return stepaf_is_attention(ctx) ||
           (region->target && (!region->leaving || region->leaving < region->uses));
}

static void pack_regions(struct stepaf_ctx *ctx, struct stepaf_pack *pack)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < ctx->memory.n_regions; i++)
        n += is_offered(ctx, ctx->memory.regions[i]);
    stepaf_pack_u32(pack, n);
    for (uint32_t i = 0; i < ctx->memory.n_regions; i++) {
        const struct stepaf_region *region = ctx->memory.regions[i];
        if (!is_offered(ctx, region))
            continue;
        stepaf_pack_u32(pack, region->mem.id);
        stepaf_pack_u64(pack, region->mem.bytes);
        for (unsigned t = 0; t < ctx->net.n_transports; t++)
            pack_counted(ctx->net.transports[t], stepaf_reach(ctx->net.transports[t], region),
                         pack);
    }
}

void stepaf_advert_pack(struct stepaf_ctx *ctx, stepaf_status_t status, struct stepaf_pack *pack)
{
    stepaf_pack_u32(pack, DECLARE_MAGIC);
    stepaf_pack_u32(pack, (uint32_t)status);
    stepaf_pack_text(pack, status ? stepaf_last_error()->text : "");
    stepaf_pack_u32(pack, ctx->epoch);
    stepaf_pack_u32(pack, (ctx->commit.changed ? CHANGED : 0) | (ctx->gpu.asks ? ASKS : 0) |
                              (ctx->job.members.will.leaves_lost ? LEAVES_LOST : 0) |
                              (ctx->job.members.will.admits ? ADMITS : 0) |
                              (ctx->job.members.will.leaves ? LEAVES : 0));
    if (status)
        return;
    stepaf_pack_u32(pack, ctx->net.n_transports);
    for (unsigned t = 0; t < ctx->net.n_transports; t++) {
        stepaf_pack_text(pack, ctx->net.transports[t]->ops->name);
        pack_counted(ctx->net.transports[t], NULL, pack);
    }
    stepaf_keys_sort(ctx);
    pack_keys(ctx, pack);
    pack_regions(ctx, pack);
    ctx->feature->pack(ctx, pack);
}

static void skip_counted(struct stepaf_unpack *unpack)
{
    uint32_t bytes = stepaf_unpack_u32(unpack);
    (void)stepaf_unpack_bytes(unpack, bytes);
}

/* Read one receive buffer. Its ranks are left in place. */
static struct stepaf_unpack read_recv_buf(struct stepaf_unpack *unpack, uint32_t *region_p,
                                          uint64_t *offset_p, uint64_t *stride_p, uint32_t *n_p,
                                          uint32_t *consecutive_p)
{
    *region_p = stepaf_unpack_u32(unpack);
    *offset_p = stepaf_unpack_u64(unpack);
    *stride_p = stepaf_unpack_u64(unpack);
    *n_p = stepaf_unpack_u32(unpack);
    *consecutive_p = stepaf_unpack_u32(unpack);
    struct stepaf_unpack ranks = *unpack;
    (void)stepaf_unpack_bytes(unpack, (*consecutive_p ? 1 : (size_t)*n_p) * sizeof(uint32_t));
    return ranks;
}

static bool read_key(struct stepaf_unpack *unpack, struct stepaf_advert_key_row *key)
{
    uint32_t region, n, consecutive;
    uint64_t offset, stride;

    key->id = stepaf_unpack_u64(unpack);
    key->direction = stepaf_unpack_u32(unpack);
    key->dtype = stepaf_unpack_u32(unpack);
    key->mem_kind = stepaf_unpack_u32(unpack);
    key->max_bytes = stepaf_unpack_u32(unpack);
    key->depth = stepaf_unpack_u32(unpack);
    key->ndim = stepaf_unpack_u32(unpack);
    if (key->ndim > STEPAF_MAX_DIMS)
        return false;
    for (uint32_t i = 0; i < key->ndim; i++)
        key->shape[i] = (int64_t)stepaf_unpack_u64(unpack);
    key->n_recv_bufs = stepaf_unpack_u32(unpack);
    key->recv_bufs = *unpack;
    for (uint32_t i = 0; i < key->n_recv_bufs && !unpack->failed; i++)
        (void)read_recv_buf(unpack, &region, &offset, &stride, &n, &consecutive);
    return !unpack->failed;
}

static bool read_keys(struct stepaf_unpack unpack, struct stepaf_advert *advert)
{
    advert->n_keys = stepaf_unpack_u32(&unpack);
    if (advert->n_keys > STEPAF_MAX_KEYS)
        return false;
    advert->keys = calloc((size_t)advert->n_keys + 1, sizeof(*advert->keys));
    advert->oom = !advert->keys;
    if (advert->oom)
        return false;
    for (uint32_t i = 0; i < advert->n_keys; i++) {
        if (!read_key(&unpack, &advert->keys[i]))
            return false;
        if (i && advert->keys[i - 1].id >= advert->keys[i].id)
            return false;
    }
    return unpack.at == unpack.end;
}

static bool same_bytes(const struct stepaf_unpack *a, const struct stepaf_unpack *b)
{
    return a->end - a->at == b->end - b->at && !memcmp(a->at, b->at, (size_t)(a->end - a->at));
}

/* Take the keys: those of the rank before if they are identical. */
static bool take_keys(struct stepaf_unpack *unpack, struct stepaf_advert *advert,
                      const struct stepaf_advert *before)
{
    uint64_t bytes = stepaf_unpack_u64(unpack);
    const void *place = stepaf_unpack_bytes(unpack, bytes);

    if (!place)
        return false;
    advert->key_bytes = stepaf_unpack_from(place, bytes);
    if (!before || before->status || !same_bytes(&before->key_bytes, &advert->key_bytes))
        return read_keys(advert->key_bytes, advert);
    advert->same_as = before->same_as ? before->same_as : before;
    advert->n_keys = before->n_keys;
    advert->keys = before->keys;
    return true;
}

/* Check the part about leaving ranks and guests, if there is one. */
static void read_guests(struct stepaf_unpack *unpack, struct stepaf_advert *advert)
{
    advert->guests = *unpack;
    if (unpack->failed || unpack->at == unpack->end)
        return;
    unpack->failed = stepaf_unpack_u32(unpack) > 1 || unpack->failed;
    (void)stepaf_unpack_bytes(unpack, (size_t)stepaf_unpack_u32(unpack) * sizeof(uint32_t));
    (void)stepaf_unpack_bytes(unpack, (size_t)stepaf_unpack_u32(unpack) * sizeof(uint32_t));
    for (uint32_t n = stepaf_unpack_u32(unpack); n && !unpack->failed; n--) {
        (void)stepaf_unpack_u32(unpack);
        (void)stepaf_unpack_u64(unpack);
        (void)stepaf_unpack_bytes(unpack, stepaf_unpack_u64(unpack));
    }
}

static bool read_body(struct stepaf_unpack *unpack, struct stepaf_advert *advert,
                      const struct stepaf_advert *before)
{
    advert->n_transports = stepaf_unpack_u32(unpack);
    advert->transports = *unpack;
    if (advert->n_transports > STEPAF_MAX_TRANSPORTS)
        return false;
    for (uint32_t t = 0; t < advert->n_transports; t++) {
        skip_counted(unpack);
        skip_counted(unpack);
    }
    if (unpack->failed || !take_keys(unpack, advert, before))
        return false;
    advert->n_regions = stepaf_unpack_u32(unpack);
    advert->regions = *unpack;
    for (uint32_t i = 0; i < advert->n_regions && !unpack->failed; i++) {
        (void)stepaf_unpack_u32(unpack);
        (void)stepaf_unpack_u64(unpack);
        for (uint32_t t = 0; t < advert->n_transports; t++)
            skip_counted(unpack);
    }
    uint64_t bytes = stepaf_unpack_u64(unpack);
    const void *streams = stepaf_unpack_bytes(unpack, bytes);
    advert->streams = stepaf_unpack_from(streams, streams ? bytes : 0);
    read_guests(unpack, advert);
    return !unpack->failed && unpack->at == unpack->end;
}

stepaf_status_t stepaf_advert_read(const void *blob, size_t bytes, int role, int world_rank,
                                   const struct stepaf_advert *before,
                                   struct stepaf_advert *advert_p)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(blob, bytes);
    struct stepaf_advert advert = {.role = role, .world_rank = world_rank};
    bool ok = stepaf_unpack_u32(&unpack) == DECLARE_MAGIC;

    advert.status = stepaf_status_from(stepaf_unpack_u32(&unpack));
    stepaf_unpack_text(&unpack, advert.text, sizeof(advert.text));
    advert.epoch = stepaf_unpack_u32(&unpack);
    uint32_t facts = stepaf_unpack_u32(&unpack);
    advert.changed = facts & CHANGED;
    advert.asks = facts & ASKS;
    advert.will.leaves_lost = facts & LEAVES_LOST;
    advert.will.admits = facts & ADMITS;
    advert.will.leaves = facts & LEAVES;
    if (ok && !unpack.failed && !advert.status)
        ok = read_body(&unpack, &advert, before);
    if (!ok || unpack.failed) {
        stepaf_advert_free(&advert);
        if (advert.oom)
            return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        return stepaf_error_set_peer(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                     (struct stepaf_who){-1, -1, world_rank},
                                     "the advert of rank %d is malformed", world_rank);
    }
    *advert_p = advert;
    return STEPAF_OK;
}

bool stepaf_advert_has_failed(const void *blob, size_t bytes)
{
    struct stepaf_unpack unpack = stepaf_unpack_from(blob, bytes);
    bool is_advert = stepaf_unpack_u32(&unpack) == DECLARE_MAGIC;

    return !is_advert || stepaf_unpack_u32(&unpack) || unpack.failed;
}

void stepaf_advert_free(struct stepaf_advert *advert)
{
    if (!advert->same_as)
        free(advert->keys);
    advert->keys = NULL;
}

const struct stepaf_advert_key_row *stepaf_advert_key(const struct stepaf_advert *advert,
                                                      uint64_t id)
{
    uint32_t low = 0, high = advert->n_keys;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (advert->keys[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < advert->n_keys && advert->keys[low].id == id ? &advert->keys[low] : NULL;
}

bool stepaf_advert_slice(const struct stepaf_advert *advert, uint64_t id, uint32_t rank,
                         uint32_t *region_p, uint64_t *offset_p)
{
    const struct stepaf_advert_key_row *key = stepaf_advert_key(advert, id);
    struct stepaf_unpack unpack;
    uint64_t offset, stride;
    uint32_t n, consecutive;

    if (!key)
        return false;
    unpack = key->recv_bufs;
    for (uint32_t s = 0; s < key->n_recv_bufs; s++) {
        struct stepaf_unpack ranks =
            read_recv_buf(&unpack, region_p, &offset, &stride, &n, &consecutive);
        uint32_t i = consecutive ? rank - stepaf_unpack_u32(&ranks) : 0;
        while (!consecutive && i < n && stepaf_unpack_u32(&ranks) != rank)
            i++;
        if (i < n) {
            *offset_p = offset + i * stride;
            return true;
        }
    }
    return false;
}

bool stepaf_advert_transport(const struct stepaf_advert *advert, const char *name,
                             struct stepaf_unpack *unpack_p, uint32_t *index_p)
{
    struct stepaf_unpack unpack = advert->transports;
    char its_name[32];

    for (uint32_t t = 0; t < advert->n_transports; t++) {
        stepaf_unpack_text(&unpack, its_name, sizeof(its_name));
        uint32_t bytes = stepaf_unpack_u32(&unpack);
        const void *place = stepaf_unpack_bytes(&unpack, bytes);
        if (place && !strcmp(its_name, name)) {
            *unpack_p = stepaf_unpack_from(place, bytes);
            *index_p = t;
            return true;
        }
    }
    return false;
}
