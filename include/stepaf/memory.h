/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that tensors live in. */
#ifndef STEPAF_MEMORY_H
#define STEPAF_MEMORY_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Allocate memory that peers on the node can reach directly: pushes into it are one copy.
 *
 *  The memory is registered and zeroed, host memory aligned to a page, GPU memory to 512 bytes.
 *  Peers can reach it after the next commit; as the source of a push or a response it can be used
 *  at once. GPU memory is that of the context's GPU: the one that is current to the thread whose
 *  call is the first to need a GPU, or GPU 0. Plans without STEPAF_PLAN_STREAM can use it from the
 *  commit on that follows stepaf_plan_create (attention), or the declaration of a key that is in GPU
 *  memory and that no stream plan names (FFN): straight, where an RDMA device reaches it, else by way
 *  of as much pinned host memory, which the commit allocates.
 *  @param bytes  1 .. 2^40
 *  @param kind   STEPAF_MEM_HOST or STEPAF_MEM_CUDA
 *  @param ptr_p  owned by the context: stepaf_free or stepaf_finalize ends it.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID; STEPAF_ERR_NO_MEMORY;
 *  STEPAF_ERR_UNSUPPORTED (kind, or no GPU); STEPAF_ERR_TRANSPORT (a device cannot register it,
 *  or the GPU has failed). Nothing changed on failure. Does not block on peers. */
STEPAF_API stepaf_status_t stepaf_alloc(stepaf_context_h ctx, size_t bytes, stepaf_mem_kind_t kind,
                                        void **ptr_p);

/** Free memory from stepaf_alloc. GPU memory: waits until the GPU is done with all that was
 *  enqueued before, so that no stream should be waiting for a peer. Over RDMA: waits until peers'
 *  devices have acknowledged what was sent, since until then this rank's device may send it again; a
 *  peer that does not is lost after STEPAF_VERBS_PEER_TIMEOUT_US.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_UNREGISTERED (not the start of an
 *  allocation); STEPAF_ERR_STATE (a plan or a receive registration uses it; or streams wait for peers
 *  by way of the host, see stepaf/stream.h); STEPAF_ERR_TIMEOUT (one of these waits took
 *  STEPAF_TIMEOUT_US; names a peer). Nothing changed on
 *  failure. Peers' mappings end at the next commit. */
STEPAF_API stepaf_status_t stepaf_free(stepaf_context_h ctx, void *ptr);

/** Register memory of the caller's own, so that tensors may lie in it: host memory, or memory of
 *  the context's GPU (see stepaf_alloc) from any of CUDA's allocators.
 *
 *  On the node, peers reach host pages by cross-memory attach where the kernel permits it, else
 *  through a small ring; stepaf_alloc is faster. Of GPU memory, peers reach directly what lies in one
 *  allocation by cudaMalloc or cuMemAlloc; for other (memory pools, PyTorch's expandable segments)
 *  the library receives into memory of its own and copies. Such an allocation is best a multiple of
 *  2 MiB, as PyTorch's large ones and stepaf_alloc's are: others have smaller pages, and NVLink is
 *  slower into these (64 MiB on H200: 2 percent).
 *  @param ptr    start; must not overlap another registration.
 *  @param bytes  1 .. 2^40; stays the caller's and mapped until stepaf_deregister.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (NULL, size, overlap,
 *  only a part of it is GPU memory, or there is no memory in a part of it); STEPAF_ERR_NO_MEMORY; STEPAF_ERR_UNSUPPORTED (managed memory,
 *  or memory of another GPU); STEPAF_ERR_TRANSPORT (a device cannot register it: often a limit of
 *  locked memory). Nothing changed on failure. Does not block on peers. */
STEPAF_API stepaf_status_t stepaf_register(stepaf_context_h ctx, void *ptr, size_t bytes);

/** End a registration. On the node: waits until a lost peer that is still there has ended the write to
 *  host memory that it had begun; it can begin no other.
 *  @param ptr  as given to stepaf_register.
 *  @return as stepaf_free. */
STEPAF_API stepaf_status_t stepaf_deregister(stepaf_context_h ctx, void *ptr);

/** Library memory beyond the caller's tensors, bytes: fixed + declared + peers * per_peer +
 *  per_key, and staging. */
typedef struct stepaf_memory_use {
    size_t size;      /* in: sizeof(stepaf_memory_use_t) */
    size_t fixed;     /* context, settings, trace ring */
    size_t declared;  /* what each key and plan takes once, however many peers there are */
    size_t per_peer;  /* for each rank of the other role */
    size_t peers;     /* how many those are, in this rank's mesh */
    size_t per_key;   /* what plans take for their tensors at each peer and slot, all together */
    size_t key_peers; /* how many (tensor, peer, slot) those are */
    size_t receive;   /* library-allocated receive buffers: the callers' tensors */
    size_t staging;   /* only where a peer's pages can be reached by no direct copy */
} stepaf_memory_use_t;

/** Report the memory that the library itself uses in this rank, after a commit.
 *  @param use_p  filled; its size is set by the caller.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (@a use_p is NULL, or its size too small).
 *  Never blocks. */
STEPAF_API stepaf_status_t stepaf_memory_query(stepaf_context_h ctx, stepaf_memory_use_t *use_p);

#ifdef __cplusplus
}
#endif
#endif
