/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: where tensors are stored, and what the library itself uses. */
#ifndef STEPAF_MEMORY_H
#define STEPAF_MEMORY_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Allocate memory that peers on the node can write to directly: a push into it is one copy.
 *
 *  The memory is registered and zeroed; host memory is aligned to a page, GPU memory to 512 bytes.
 *  Peers can reach it after the next commit; it can be the source of a push or an answer at
 *  once. A forked child shares host memory with its parent: what either writes, both see.
 *
 *  GPU memory is allocated on the context's GPU: the one that is current in the thread whose call
 *  is the first to need a GPU, or GPU 0. Plans without STEPAF_PLAN_STREAM can use it after the
 *  commit that follows stepaf_plan_create (attention ranks) or stepaf_key_declare with
 *  STEPAF_MEM_CUDA (FFN ranks, for keys that no stream plan names). RDMA devices that reach GPU
 *  memory use it directly. All other transfers go through a bounce buffer of the same size in
 *  pinned host memory, which the commit allocates.
 *  @param bytes  1 .. 2^40
 *  @param kind   STEPAF_MEM_HOST or STEPAF_MEM_CUDA
 *  @param ptr_p  owned by the context until stepaf_free or stepaf_finalize.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID; STEPAF_ERR_NO_MEMORY;
 *  STEPAF_ERR_UNSUPPORTED (kind, or no GPU); STEPAF_ERR_TRANSPORT (a device cannot register it,
 *  or the GPU failed). Nothing changed on failure. Does not block on peers. */
STEPAF_API stepaf_status_t stepaf_alloc(stepaf_context_h ctx, size_t bytes, stepaf_mem_kind_t kind,
                                        void **ptr_p);

/** Free memory from stepaf_alloc. Peers unmap it at the next commit.
 *
 *  For GPU memory this waits until the GPU has completed all work that was enqueued before, so no
 *  stream should be waiting for a peer. With RDMA it waits until the peers' devices have
 *  acknowledged what was sent, because until then this rank's device may send it again. A peer that
 *  does not acknowledge is lost after STEPAF_VERBS_PEER_TIMEOUT_US.
 *  @param ptr  as returned by stepaf_alloc.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_UNREGISTERED (not the start of an
 *  allocation); STEPAF_ERR_STATE (a plan or stepaf_key_set_recv uses it, or streams wait for
 *  peers through the host, see stepaf_stream(7)); STEPAF_ERR_TIMEOUT (one of these waits took
 *  STEPAF_TIMEOUT_US; names a peer). Nothing changed on failure. Blocks as described. */
STEPAF_API stepaf_status_t stepaf_free(stepaf_context_h ctx, void *ptr);

/** Register memory of the caller, so that tensors may be in it: host memory, or memory of the
 *  context's GPU (see stepaf_alloc) from any allocator of CUDA.
 *
 *  Peers on the node reach host memory by cross-memory attach if the kernel permits it, otherwise
 *  through a small ring; memory from stepaf_alloc is faster. They reach GPU memory directly if it
 *  lies in one allocation by cudaMalloc or cuMemAlloc. Into other GPU memory (memory pools,
 *  PyTorch's expandable segments) the library copies from a buffer of its own. The size of the
 *  allocation should be a multiple of 2 MiB, as it is for PyTorch's large segments and
 *  stepaf_alloc: other allocations have smaller pages, into which NVLink is slower (64 MiB on an
 *  H200: by 2 percent).
 *  @param ptr    start of a range that does not overlap another registration. The memory remains
 *                the caller's, and must stay mapped until stepaf_deregister. A source that is not
 *                mapped fails its operation with STEPAF_ERR_UNREGISTERED where the kernel copies
 *                it (over TCP always); where the library does, it is a SIGSEGV, as in memcpy. With
 *                STEPAF_SHM_COPY=kernel, the kernel copies sources between ranks of a node as well.
 *                If a destination is not mapped, or is read-only, its rank and the peer that writes
 *                to it lose each other over TCP and by cross-memory attach, through the ring with
 *                STEPAF_SHM_COPY=kernel, and stepaf_last_error says why at both. Through the ring
 *                without that setting it is a SIGSEGV in its own rank. So it may be over libfabric
 *                and UCX, and while another thread is unmapping it. An RDMA device writes to the
 *                memory that was registered, mapped or not.
 *  @param bytes  1 .. 2^40
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (NULL, size, overlap, a range that
 *  is GPU memory or mapped only in part); STEPAF_ERR_NO_MEMORY; STEPAF_ERR_UNSUPPORTED (managed
 *  memory, or memory of another GPU); STEPAF_ERR_TRANSPORT (a device cannot register it: often a
 *  limit of locked memory). Nothing changed on failure. Does not block on peers. */
STEPAF_API stepaf_status_t stepaf_register(stepaf_context_h ctx, void *ptr, size_t bytes);

/** End a registration. In addition to what stepaf_free waits for, this waits until a peer on the
 *  node that is lost but still running has finished its last write to host memory; the peer cannot
 *  begin another.
 *  @param ptr  as passed to stepaf_register.
 *  @return as stepaf_free. */
STEPAF_API stepaf_status_t stepaf_deregister(stepaf_context_h ctx, void *ptr);

/** Memory that the library uses in this rank, in bytes. Without the tensors the sum is fixed +
 *  declared + peers * per_peer + per_key + bounce. */
typedef struct stepaf_memory_use {
    size_t size;      /* in: sizeof(stepaf_memory_use_t) */
    size_t fixed;     /* context, settings, trace ring; verdicts if they are on */
    size_t declared;  /* of keys and plans, independent of the number of peers */
    size_t per_peer;  /* for each peer */
    size_t peers;     /* number of peers */
    size_t per_key;   /* of plans, for the tensors of each peer and slot, in total */
    size_t key_peers; /* number of (tensor, peer, slot) in per_key */
    size_t receive;   /* receive buffers that the library allocated, for tensors */
    size_t bounce;    /* bounce buffers, for peers whose memory cannot be written directly */
} stepaf_memory_use_t;

/** Report the memory that the library itself uses in this rank. After a commit.
 *  @param use_p  filled; its size is set by the caller.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (@a use_p is NULL, or its size too
 *  small). Never blocks. */
STEPAF_API stepaf_status_t stepaf_memory_query(stepaf_context_h ctx, stepaf_memory_use_t *use_p);

#ifdef __cplusplus
}
#endif
#endif
