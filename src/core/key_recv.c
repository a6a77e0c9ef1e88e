/* SPDX-License-Identifier: Apache-2.0 */
/* Receive buffers of keys at an FFN rank: in memory that the caller names, or that a commit
 * allocates. */
#include <stdlib.h>
#include <string.h>

#include "core/ctx.h"
#include "core/key.h"
#include "core/key_recv.h"
#include "core/mesh.h"
#include "core/region.h"

/* Set the receive addresses of the ranks of @a recv_buf, or clear them. */
static void set_slices(const struct stepaf_ctx *ctx, struct stepaf_key *key,
                       const struct stepaf_recv_buf *recv_buf, bool there)
{
    uint8_t *base = recv_buf->region->mem.base + recv_buf->offset;

    for (uint32_t i = 0; i < recv_buf->n_ranks; i++)
        key->slices[stepaf_mesh_index(&ctx->job.mesh, recv_buf->ranks[i])] =
            there ? base + i * recv_buf->stride : NULL;
}

static void recv_buf_free(const struct stepaf_ctx *ctx, struct stepaf_key *key,
                          struct stepaf_recv_buf *recv_buf)
{
    struct stepaf_region *region = recv_buf->region;

    region->uses--;
    region->received--;
    region->leaving -= recv_buf->leaving;
    set_slices(ctx, key, recv_buf, false);
    stepaf_list_remove(&recv_buf->node);
    free(recv_buf->ranks);
    free(recv_buf);
}

static struct stepaf_recv_buf *recv_buf_add(const struct stepaf_ctx *ctx, struct stepaf_key *key,
                                            struct stepaf_region *region, uint64_t offset,
                                            uint64_t stride, const uint32_t *ranks,
                                            uint32_t n_ranks)
{
    struct stepaf_recv_buf *recv_buf = calloc(1, sizeof(*recv_buf));

    if (!recv_buf)
        return NULL;
    recv_buf->ranks = malloc(n_ranks * sizeof(recv_buf->ranks[0]));
    if (!key->slices)
        key->slices = calloc(ctx->n_peers, sizeof(uint8_t *));
    if (!recv_buf->ranks || !key->slices) {
        free(recv_buf->ranks);
        free(recv_buf);
        return NULL;
    }
    memcpy(recv_buf->ranks, ranks, n_ranks * sizeof(ranks[0]));
    recv_buf->region = region;
    recv_buf->offset = offset;
    recv_buf->stride = stride;
    recv_buf->n_ranks = n_ranks;
    region->uses++;
    region->received++;
    region->target = true;
    set_slices(ctx, key, recv_buf, true);
    stepaf_list_append(&key->recv_bufs, &recv_buf->node);
    return recv_buf;
}

static stepaf_status_t check_rank(const struct stepaf_ctx *ctx, const struct stepaf_key *key,
                                  int rank)
{
    if (rank < 0 || rank >= ctx->job.group_size[STEPAF_GROUP_ATTENTION])
        return stepaf_key_invalid(key->id, "no such attention rank");
    if (!stepaf_mesh_has(&ctx->job.mesh, (uint32_t)rank))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                "key %llu: attention rank %d is in lane %u of the mesh, this rank "
                                "in lane %u: it will never push here",
                                (unsigned long long)key->id, rank,
                                (uint32_t)rank % ctx->job.mesh.lanes, ctx->job.mesh.lane);
    return STEPAF_OK;
}

/* Fill ranks_p with the attention ranks meant, and check them. @a is_named: false for each peer. */
static stepaf_status_t receive_ranks(const struct stepaf_ctx *ctx, const struct stepaf_key *key,
                                     const int *ranks, uint32_t n, bool *is_named,
                                     uint32_t *ranks_p)
{
    for (uint32_t i = 0; i < n; i++) {
        int rank = ranks ? ranks[i] : (int)stepaf_mesh_rank(&ctx->job.mesh, i);
        stepaf_status_t status = check_rank(ctx, key, rank);
        if (status)
            return status;
        uint32_t peer = stepaf_mesh_index(&ctx->job.mesh, (uint32_t)rank);
        if (is_named[peer])
            return stepaf_key_invalid(key->id, "an attention rank is named twice");
        is_named[peer] = true;
        if (stepaf_key_slice(key, peer))
            return stepaf_key_invalid(key->id,
                                      "an attention rank already has a receive buffer for the key");
        ranks_p[i] = (uint32_t)rank;
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_key_receive(struct stepaf_ctx *ctx, uint64_t id, void *buffer, size_t bytes,
                                   const int *ranks, int n_ranks)
{
    struct stepaf_key *key = stepaf_key_find(ctx, id);
    struct stepaf_region *region;
    stepaf_status_t status;
    uint32_t n, *list;
    bool *is_named;
    size_t stride;

    if (!key || key->direction != STEPAF_PUSH)
        return stepaf_error_set(STEPAF_ERR_KEY, STEPAF_PHASE_NONE,
                                "key %llu is not declared as a push key", (unsigned long long)id);
    if (n_ranks < 0 || (!ranks) != (n_ranks == 0) || (uint32_t)n_ranks > ctx->n_peers)
        return stepaf_key_invalid(id, "ranks and n_ranks do not name attention ranks");
    n = ranks ? (uint32_t)n_ranks : ctx->n_peers;
    if (bytes % n)
        return stepaf_key_invalid(id, "bytes is not a multiple of the number of ranks");
    stride = bytes / n;
    if (stride < (size_t)key->depth * key->max_bytes)
        return stepaf_error_set(STEPAF_ERR_SIZE, STEPAF_PHASE_NONE,
                                "key %llu: a slice of %zu bytes holds less than %u buffers of %u "
                                "bytes",
                                (unsigned long long)id, stride, key->depth, key->max_bytes);
    region = stepaf_region_find(ctx, buffer, bytes);
    if (!region)
        return stepaf_error_set(STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_NONE,
                                "key %llu: the receive buffer is not in registered memory",
                                (unsigned long long)id);
    if (region->mem.kind != key->mem_kind)
        return stepaf_key_invalid(
            id, region->mem.kind == STEPAF_MEM_CUDA
                    ? "the receive buffer is in GPU memory, but the key is declared for "
                      "host memory"
                    : "the receive buffer is in host memory, but the key is declared "
                      "for GPU memory");
    list = malloc(n * sizeof(*list));
    is_named = calloc(ctx->n_peers, sizeof(*is_named));
    status = list && is_named ? receive_ranks(ctx, key, ranks, n, is_named, list)
                              : stepaf_error_no_memory(STEPAF_PHASE_NONE);
    if (!status && !recv_buf_add(ctx, key, region, (uint64_t)((uint8_t *)buffer - region->mem.base),
                                 stride, list, n))
        status = stepaf_error_no_memory(STEPAF_PHASE_NONE);
    free(list);
    free(is_named);
    if (!status)
        ctx->commit.changed = true;
    return status;
}

/* Slices start a cache line apart, so that neighbours do not share one. */
static uint64_t slice_bytes(const struct stepaf_key *key)
{
    return ((uint64_t)key->depth * key->max_bytes + 63) / 64 * 64;
}

/* Collect the attention ranks that have no buffer for @a key. */
static uint32_t ranks_without(const struct stepaf_ctx *ctx, const struct stepaf_key *key,
                              uint32_t *ranks_p)
{
    uint32_t n = 0;

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        if (!stepaf_key_slice(key, p))
            ranks_p[n++] = stepaf_mesh_rank(&ctx->job.mesh, p);
    return n;
}

static bool is_received_in_kind(const struct stepaf_key *key, stepaf_mem_kind_t kind)
{
    return key->direction == STEPAF_PUSH && key->mem_kind == kind;
}

/* Allocate one region for the buffers of all keys of a kind that lack some. @a ranks is scratch. */
static stepaf_status_t allocate_kind(struct stepaf_ctx *ctx, stepaf_mem_kind_t kind,
                                     uint32_t *ranks)
{
    struct stepaf_region *region = NULL;
    uint64_t total = 0, at = 0;
    stepaf_status_t status;

    for (uint32_t i = 0; i < ctx->memory.n_keys; i++)
        if (is_received_in_kind(ctx->memory.keys[i], kind))
            total +=
                ranks_without(ctx, ctx->memory.keys[i], ranks) * slice_bytes(ctx->memory.keys[i]);
    for (uint32_t i = 0; i < ctx->memory.n_keys; i++) {
        struct stepaf_key *key = ctx->memory.keys[i];
        uint32_t n = is_received_in_kind(key, kind) ? ranks_without(ctx, key, ranks) : 0;
        if (!n)
            continue;
        if (!region && (status = stepaf_region_alloc(ctx, total ? total : 64, kind, &region)))
            return status;
        struct stepaf_recv_buf *recv_buf =
            recv_buf_add(ctx, key, region, at, slice_bytes(key), ranks, n);
        if (!recv_buf) {
            if (!region->uses)
                stepaf_region_drop(ctx, region); /* no key leads to it */
            return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        }
        recv_buf->library = true;
        at += n * slice_bytes(key);
    }
    return STEPAF_OK;
}

stepaf_status_t stepaf_key_allocate(struct stepaf_ctx *ctx)
{
    uint32_t *ranks = malloc(ctx->n_peers * sizeof(*ranks));
    stepaf_status_t status;

    if (!ranks)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    status = allocate_kind(ctx, STEPAF_MEM_HOST, ranks);
    if (!status)
        status = allocate_kind(ctx, STEPAF_MEM_CUDA, ranks);
    free(ranks);
    if (status)
        stepaf_key_allocate_undo(ctx);
    return status;
}

void stepaf_key_allocate_undo(struct stepaf_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->memory.n_keys; i++) {
        struct stepaf_list *recv_bufs = &ctx->memory.keys[i]->recv_bufs;
        for (struct stepaf_list *node = recv_bufs->next, *next; node != recv_bufs; node = next) {
            struct stepaf_recv_buf *recv_buf =
                stepaf_container_of(node, struct stepaf_recv_buf, node);
            struct stepaf_region *region = recv_buf->region;
            next = node->next;
            if (!recv_buf->library || region->offered)
                continue;
            recv_buf_free(ctx, ctx->memory.keys[i], recv_buf);
            if (!region->uses)
                stepaf_region_drop(ctx, region);
        }
    }
}

void stepaf_recv_bufs_free(struct stepaf_ctx *ctx, struct stepaf_key *key)
{
    while (!stepaf_list_empty(&key->recv_bufs))
        recv_buf_free(ctx, key,
                      stepaf_container_of(key->recv_bufs.next, struct stepaf_recv_buf, node));
    free(key->slices);
    key->slices = NULL;
}

/* ---- withdrawn keys ---- */

void stepaf_recv_bufs_leave(struct stepaf_key *key)
{
    for (struct stepaf_list *node = key->recv_bufs.next; node != &key->recv_bufs;
         node = node->next) {
        struct stepaf_recv_buf *recv_buf = stepaf_container_of(node, struct stepaf_recv_buf, node);
        recv_buf->leaving = true;
        recv_buf->region->leaving++;
    }
}

void stepaf_key_release_bufs(struct stepaf_ctx *ctx, struct stepaf_key *key)
{
    while (!stepaf_list_empty(&key->recv_bufs)) {
        struct stepaf_recv_buf *recv_buf =
            stepaf_container_of(key->recv_bufs.next, struct stepaf_recv_buf, node);
        struct stepaf_region *region = recv_buf->region;
        bool library = recv_buf->library;
        recv_buf_free(ctx, key, recv_buf);
        if (library && !region->uses)
            stepaf_region_drop(ctx, region);
        else if (!region->received)
            region->target = false;
    }
}
