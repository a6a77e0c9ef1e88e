/* SPDX-License-Identifier: Apache-2.0 */
/* Receive buffers: where an FFN rank receives a key. */
#ifndef STEPAF_CORE_KEY_RECV_H
#define STEPAF_CORE_KEY_RECV_H

#include <stdbool.h>

#include "base/list.h"
#include "core/key.h"

struct stepaf_region;

/* A receive buffer at an FFN rank: a run of equal slices in one region. */
struct stepaf_recv_buf {
    struct stepaf_list node;
    struct stepaf_region *region;
    uint64_t offset; /* of the first slice */
    uint64_t stride; /* from slice to slice */
    uint32_t n_ranks;
    uint32_t *ranks; /* attention ranks, slice by slice */
    bool library;    /* allocated at commit, not by the caller */
    bool leaving;    /* of a withdrawn key: freed by the next commit */
};

stepaf_status_t stepaf_key_receive(struct stepaf_ctx *ctx, uint64_t id, void *buffer, size_t bytes,
                                   const int *ranks, int n_ranks);
/* Give every push key receive buffers for the ranks that have none. stepaf_key_allocate_undo takes
 * back those given since the last commit. */
stepaf_status_t stepaf_key_allocate(struct stepaf_ctx *ctx);
void stepaf_key_allocate_undo(struct stepaf_ctx *ctx);
/* Release the buffers of a key that peers do not know, or no longer know. Buffers allocated by the
 * library are freed once nothing is received in them. */
void stepaf_key_release_bufs(struct stepaf_ctx *ctx, struct stepaf_key *key);
/* Mark a key's buffers to be freed by the next commit. */
void stepaf_recv_bufs_leave(struct stepaf_key *key);
void stepaf_recv_bufs_free(struct stepaf_ctx *ctx, struct stepaf_key *key);
/* Return where an FFN rank receives @a key from peer @a peer; NULL: nowhere. */
static inline uint8_t *stepaf_key_slice(const struct stepaf_key *key, uint32_t peer)
{
    return key->slices ? key->slices[peer] : NULL;
}

#endif
