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
 *  The memory is registered and zeroed. Host memory is aligned to a page, GPU memory to 512 bytes.
 *  Peers can reach the memory after the next commit; it can be the source of a push or an answer
 *  immediately. A forked child shares host memory with its parent: both see what either writes.
 *
 *  GPU memory is allocated on the context's GPU: the one that is current in the thread whose call
 *  is the first to need a GPU, or GPU 0. Plans without STEPAF_PLAN_STREAM can use GPU memory after
 *  the commit that follows stepaf_plan_create (attention ranks) or stepaf_key_declare with
 *  STEPAF_MEM_CUDA (FFN ranks, for keys that no stream plan names). RDMA devices that reach GPU
 *  memory use it directly. All other transfers go through a bounce buffer of the same size in
 *  pinned host memory, which the commit allocates.
 *  @param bytes  1 .. 2^40
 *  @param kind   STEPAF_MEM_HOST or STEPAF_MEM_CUDA
 *  @param ptr_p  owned by the context until stepaf_free or stepaf_finalize.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID; STEPAF_ERR_NO_MEMORY;
 *  STEPAF_ERR_UNSUPPORTED (kind, or no GPU); STEPAF_ERR_TRANSPORT (a device cannot register the
 *  memory, or the GPU failed).
 *
 *  On failure, nothing changes. Never blocks on peers. */
STEPAF_API stepaf_status_t stepaf_alloc(stepaf_context_h ctx, size_t bytes, stepaf_mem_kind_t kind,
                                        void **ptr_p);

/** Free memory from stepaf_alloc. Peers unmap it at the next commit.
 *
 *  For GPU memory, the call waits until the GPU has completed all work that was enqueued before, so
 *  no stream should be waiting for a peer. With RDMA, the call waits until the peers' devices have
 *  acknowledged what was sent, because until then this rank's device may send it again. A peer that
 *  does not acknowledge is lost after STEPAF_VERBS_PEER_TIMEOUT_US.
 *  @param ptr  as returned by stepaf_alloc.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_UNREGISTERED (not the start of an allocation);
 *  STEPAF_ERR_STATE (a plan or stepaf_key_set_recv uses the memory, or streams wait for peers
 *  through the host, see stepaf_stream(7)); STEPAF_ERR_TIMEOUT (one of these waits took
 *  STEPAF_TIMEOUT_US; names a peer).
 *
 *  On failure, nothing changes. Blocks as described. */
STEPAF_API stepaf_status_t stepaf_free(stepaf_context_h ctx, void *ptr);

/** Register memory of the caller, so that it can hold tensors: host memory, or memory of the
 *  context's GPU (see stepaf_alloc) from any CUDA allocator.
 *
 *  Peers on the node reach host memory by cross-memory attach if the kernel permits it, otherwise
 *  through a small ring; memory from stepaf_alloc is faster. They reach GPU memory directly if it
 *  lies in one allocation by cudaMalloc or cuMemAlloc. Into other GPU memory (memory pools,
 *  PyTorch's expandable segments) the library copies from a buffer of its own. The size of the
 *  allocation should be a multiple of 2 MiB, as it is for PyTorch's large segments and
 *  stepaf_alloc: other allocations have smaller pages, into which NVLink is slower (64 MiB on an
 *  H200: by 2 percent).
 *
 *  Sources that are not mapped: where the kernel copies the source, its operation fails with
 *  STEPAF_ERR_UNREGISTERED. The kernel copies sources over TCP always, and between ranks of a node
 *  with STEPAF_SHM_COPY=kernel. Where the library copies the source, the result is a SIGSEGV, as in
 *  memcpy.
 *
 *  Destinations that are not mapped, or are read-only: over TCP, by cross-memory attach, and
 *  through the ring with STEPAF_SHM_COPY=kernel, the rank and the peer that writes to it lose each
 *  other, and stepaf_last_error gives the reason at both. Through the ring without that setting,
 *  the result is a SIGSEGV in the destination's own rank. That is also possible over libfabric and
 *  UCX, and while another thread is unmapping the destination. An RDMA device writes to the memory
 *  that was registered, mapped or not.
 *  @param ptr    start of a range that does not overlap another registration. The memory remains
 *                the caller's, and must stay mapped until stepaf_deregister.
 *  @param bytes  1 .. 2^40
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (NULL, size, overlap, or a range that
 *  is GPU memory or mapped only in part); STEPAF_ERR_NO_MEMORY; STEPAF_ERR_UNSUPPORTED (managed
 *  memory, or memory of another GPU); STEPAF_ERR_TRANSPORT (a device cannot register the memory:
 *  often a limit of locked memory).
 *
 *  On failure, nothing changes. Never blocks on peers. */
STEPAF_API stepaf_status_t stepaf_register(stepaf_context_h ctx, void *ptr, size_t bytes);

/** End a registration.
 *
 *  In addition to the waits of stepaf_free, this function waits until a peer on the node that is
 *  lost but still running has finished its last write to host memory; the peer cannot begin
 *  another.
 *  @param ptr  as passed to stepaf_register.
 *  @return as for stepaf_free.
 *
 *  On failure, nothing changes. Blocks as described. */
STEPAF_API stepaf_status_t stepaf_deregister(stepaf_context_h ctx, void *ptr);

/** Memory that the library uses in this rank, in bytes. Without the tensors, the sum is fixed +
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

/** Report the memory that the library itself uses in this rank. Call after a commit.
 *  @param use_p  filled; the caller sets its size field.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (@a use_p is NULL, or its size is too
 *  small).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_memory_query(stepaf_context_h ctx, stepaf_memory_use_t *use_p);

#ifdef __cplusplus
}
#endif
#endif
