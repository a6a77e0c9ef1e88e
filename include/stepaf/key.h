/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: names of persistent tensor buffers. */
#ifndef STEPAF_KEY_H
#define STEPAF_KEY_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Direction in which a key's tensors are sent. */
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
    int64_t shape[STEPAF_MAX_DIMS]; /* largest; shape[0] may be smaller in an operation */
    unsigned depth;                 /* buffers, so batches in flight: 1 .. STEPAF_MAX_DEPTH */
    /* Of the receive buffers and destinations in this rank. Ranks may use different kinds if only
     * stream plans name the key and convert between the two, or if no plan names the key. */
    stepaf_mem_kind_t mem_kind;
} stepaf_key_params_t;

/** Declare @a key. In force from the next commit.
 *
 *  Every rank that pushes, receives or pulls the key declares it, with equal parameters except
 *  mem_kind; this includes ranks of other lanes of the mesh. At the commit, an FFN rank gets depth
 *  receive buffers of max_bytes for each STEPAF_PUSH key and attention rank of the mesh, unless
 *  stepaf_key_set_recv has provided buffers.
 *  @param direction  STEPAF_PUSH or STEPAF_PULL
 *  @param max_bytes  of one tensor, 0 .. 2^32-1. With STEPAF_KEY_SHAPE, the size of the shape, or
 *                    0, which stands for that size.
 *  @param params     NULL for defaults; copied.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (a value out of its range, a shape that
 *  contradicts max_bytes, or the key is declared with other parameters and not withdrawn);
 *  STEPAF_ERR_LIMIT (65,536 keys); STEPAF_ERR_NO_MEMORY.
 *
 *  On failure, nothing changes. Does not block. */
STEPAF_API stepaf_status_t stepaf_key_declare(stepaf_context_h ctx, uint64_t key,
                                              stepaf_direction_t direction, size_t max_bytes,
                                              const stepaf_key_params_t *params);

/** Withdraw @a key, with all buffers that stepaf_key_set_recv has provided for it.
 *
 *  The number may be declared again immediately, also with other parameters. The old declaration,
 *  and pushes that use it, stay in force until the next commit. That commit ends the receive
 *  buffers of an FFN rank: the caller may deregister its own. The library frees those that it
 *  allocated, together for all keys that got theirs at the same commit, once all of these keys are
 *  withdrawn.
 *
 *  Ranks withdraw a key before the same commit. An FFN rank that has not withdrawn the key keeps
 *  its buffers. While attention ranks declare the key and an FFN rank does not, commits fail with
 *  STEPAF_ERR_KEY and leave the last epoch in force. The plans that stepaf_push_pull keeps for the
 *  key end immediately, with their requests.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_KEY (not declared); STEPAF_ERR_STATE (a plan of
 *  this rank names the key, or an operation of stepaf_push_pull is in flight or not released);
 *  STEPAF_ERR_NO_MEMORY.
 *
 *  On failure, nothing changes. Does not block. */
STEPAF_API stepaf_status_t stepaf_key_withdraw(stepaf_context_h ctx, uint64_t key);

/** Provide the memory in which @a key is received from the attention ranks @a ranks (FFN ranks). In
 *  force from the next commit.
 *  @a buffer is cut into n_ranks equal slices in the order of @a ranks. Each slice holds the key's
 *  depth buffers of max_bytes, one after the other. The library allocates buffers for ranks that
 *  are not named.
 *  @param buffer  in registered memory, which stays registered while the key uses it: until a
 *                 commit after stepaf_key_withdraw.
 *  @param bytes   of the whole buffer, a multiple of n_ranks.
 *  @param ranks   distinct ranks of the attention group, peers of this rank (stepaf_peer_rank);
 *                 NULL with n_ranks 0 stands for all peers in order.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_ROLE; STEPAF_ERR_KEY (not declared as a push);
 *  STEPAF_ERR_INVALID (ranks, bytes not divisible, or memory of another kind than the key's);
 *  STEPAF_ERR_SIZE (a slice holds less than depth * max_bytes); STEPAF_ERR_UNREGISTERED;
 *  STEPAF_ERR_NO_MEMORY.
 *
 *  On failure, nothing changes. Does not block. */
STEPAF_API stepaf_status_t stepaf_key_set_recv(stepaf_context_h ctx, uint64_t key, void *buffer,
                                               size_t bytes, const int *ranks, int n_ranks);

#ifdef __cplusplus
}
#endif
#endif
