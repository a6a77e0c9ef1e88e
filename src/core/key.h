/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: declaration and look-up. */
#ifndef STEPAF_CORE_KEY_H
#define STEPAF_CORE_KEY_H

#include <stepaf/stepaf.h>

#include "base/list.h"

struct stepaf_ctx;
struct stepaf_recv_buf;
struct stepaf_rmem;

enum { STEPAF_MAX_KEYS = 65536 };

/* Where the pushes of one key go at one FFN rank. */
struct stepaf_key_remote {
    const struct stepaf_rmem *rmem; /* NULL: not known there */
    uint64_t offset;                /* of slot 0 */
};

struct stepaf_key {
    uint64_t id;
    stepaf_direction_t direction;
    stepaf_dtype_t dtype;
    stepaf_mem_kind_t mem_kind;
    uint32_t max_bytes;
    uint32_t row_bytes; /* 0: the shape is not cut into rows */
    uint32_t depth;
    uint32_t since; /* first epoch in which peers know the key */
    uint32_t until; /* last such epoch, once the key is withdrawn */
    int ndim;
    int64_t shape[STEPAF_MAX_DIMS];
    uint32_t at;                      /* in ctx->memory.keys */
    uint32_t uses;                    /* tensors of plans that name it, except proxy plans */
    uint32_t stream_uses;             /* of these, tensors of stream plans */
    struct stepaf_key_remote *remote; /* attention, push: one per peer, known by commit */
    uint32_t busy;                    /* attention, push: bit s: some peer may still read slot s */
    struct stepaf_list recv_bufs;     /* FFN, push */
    uint8_t *
        *slices; /* FFN, push: receive address for each peer, NULL: nowhere; NULL: for no peer */
    struct stepaf_recv_buf
        *proxy_recv; /* FFN, push: where streams receive it from proxied peers; NULL: nowhere */
    struct stepaf_key *next; /* in ctx->memory.withdrawn */
};

/* Sort ctx->memory.keys by id. */
void stepaf_keys_sort(struct stepaf_ctx *ctx);
/* Compare the ids of two keys, for tsearch. */
int stepaf_key_compare(const void *one, const void *other);
struct stepaf_key *stepaf_key_find(const struct stepaf_ctx *ctx, uint64_t id);
/* Find a key as peers know it, that is, as of the last commit. Return NULL if peers do not know
 * it. */
struct stepaf_key *stepaf_key_known(const struct stepaf_ctx *ctx, uint64_t id);
stepaf_status_t stepaf_key_add(struct stepaf_ctx *ctx, uint64_t id, stepaf_direction_t direction,
                               size_t max_bytes, const stepaf_key_params_t *params);
/* Remove @a key from ctx->memory.keys. */
void stepaf_key_unlist(struct stepaf_ctx *ctx, const struct stepaf_key *key);
void stepaf_key_describe(const struct stepaf_key *key, uint64_t id, void *data, uint32_t bytes,
                         uint32_t max_bytes, stepaf_tensor_info_t *info_p);
stepaf_status_t stepaf_key_invalid(uint64_t id, const char *what) __attribute__((cold));

#endif
