/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: names of persistent tensor buffers. */
#ifndef STEPAF_KEY_H
#define STEPAF_KEY_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which way a key's tensors travel. */
typedef enum stepaf_direction {
    STEPAF_PUSH = 0, /* attention rank to FFN rank */
    STEPAF_PULL = 1  /* FFN rank to attention rank */
} stepaf_direction_t;

enum {
    STEPAF_KEY_DTYPE = 1 << 0,    /* default: STEPAF_U8 */
    STEPAF_KEY_SHAPE = 1 << 1,    /* ndim and shape; default: one dimension of max_bytes */
    STEPAF_KEY_DEPTH = 1 << 2,    /* default: the setting STEPAF_DEPTH (1 unless set) */
    STEPAF_KEY_MEM_KIND = 1 << 3, /* default: STEPAF_MEM_HOST */
    STEPAF_KEY_ALL = (1 << 4) - 1
};

/** Optional properties of a key. Only fields named in @a field_mask are read. */
typedef struct stepaf_key_params {
    uint64_t field_mask; /* STEPAF_KEY_*; unknown bits are STEPAF_ERR_INVALID */
    stepaf_dtype_t dtype;
    int ndim;                       /* 1 .. STEPAF_MAX_DIMS */
    int64_t shape[STEPAF_MAX_DIMS]; /* largest; shape[0] may shrink per operation */
    unsigned depth;                 /* buffers, so batches in flight: 1 .. STEPAF_MAX_DEPTH */
    /* Where it is received: of the receive buffers, and of destinations. Ranks may differ in it where
     * stream plans carry it from one kind to the other (stepaf/stream.h) or none names it. */
    stepaf_mem_kind_t mem_kind;
} stepaf_key_params_t;

/** Declare @a key. Every rank that pushes, receives or pulls it declares it, alike but for
 *  mem_kind, also in another lane of the mesh.
 *
 *  At an FFN rank a STEPAF_PUSH key gets, at commit, depth receive buffers of max_bytes for each
 *  attention rank of the mesh, unless stepaf_key_set_recv has given the caller's own.
 *  @param max_bytes  of one tensor, 0 .. 2^32-1; with STEPAF_KEY_SHAPE what the shape holds, or 0 for
 *                    just that.
 *  @param params     NULL for defaults.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (a value out of its range, shape
 *  and max_bytes that contradict each other, or the key is declared already, with other
 *  parameters, and not withdrawn); STEPAF_ERR_LIMIT (65,536 keys); STEPAF_ERR_NO_MEMORY. Nothing changed on failure.
 *  In force from the next commit. Does not block. */
STEPAF_API stepaf_status_t stepaf_key_declare(stepaf_context_h ctx, uint64_t key,
                                              stepaf_direction_t direction, size_t max_bytes,
                                              const stepaf_key_params_t *params);

/** Take back the declaration of @a key, with all of stepaf_key_set_recv that it has. Its number may be
 *  declared anew at once, with other parameters too; what was declared before is in force until the
 *  next commit, and with it what peers push.
 *
 *  With that commit an FFN rank's receive buffers are gone: memory of the caller's own may be
 *  deregistered, and what the library has allocated is freed, together for all keys that got theirs by
 *  the same commit once all of these are withdrawn. Ranks that have the key withdraw it before the same
 *  commit: an FFN rank that has not keeps its buffers, and while attention ranks have it and an FFN rank
 *  has not, commits fail (STEPAF_ERR_KEY) and leave the last epoch in force. What stepaf_push_pull has
 *  kept for the key ends at once, with its requests.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_KEY (not declared); STEPAF_ERR_STATE (a plan of this
 *  rank names it, or an operation of stepaf_push_pull is in flight or not released);
 *  STEPAF_ERR_NO_MEMORY. Nothing changed on failure. Does not block. */
STEPAF_API stepaf_status_t stepaf_key_withdraw(stepaf_context_h ctx, uint64_t key);

/** FFN ranks: receive @a key from the attention ranks @a ranks into @a buffer, cut into n_ranks
 *  equal slices in the order of @a ranks; each slice holds the key's depth buffers of
 *  max_bytes, one after the other. Ranks not named get library-allocated buffers.
 *  @param buffer   in registered memory; stays registered while the key uses it: until a commit after
 *                  stepaf_key_withdraw.
 *  @param bytes    of the whole buffer, a multiple of n_ranks; slice = bytes / n_ranks.
 *  @param ranks    attention group ranks, distinct, of this rank's mesh (stepaf_peer_rank); NULL with
 *                  n_ranks 0 stands for all of those in order.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_KEY (not declared as
 *  push); STEPAF_ERR_INVALID (ranks, not divisible, or memory of another kind than
 *  the key's); STEPAF_ERR_SIZE (a slice holds less than
 *  depth * max_bytes); STEPAF_ERR_UNREGISTERED; STEPAF_ERR_NO_MEMORY. Nothing changed on failure. In force from the
 *  next commit. Does not block. */
STEPAF_API stepaf_status_t stepaf_key_set_recv(stepaf_context_h ctx, uint64_t key, void *buffer,
                                               size_t bytes, const int *ranks, int n_ranks);

#ifdef __cplusplus
}
#endif
#endif
