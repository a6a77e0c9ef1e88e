/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs in this directory share: a rank's GPU, memory of every kind, and stream plans
 * whose bytes are made and checked on the GPU. The ranks are launched and judged by test/mpi's
 * harness.
 *
 * Both sides of a plan go through its operations in the same order, so that each knows all sizes
 * that the other uses. Nothing here waits on the host but gx_sync. */
#ifndef STEPAF_TEST_GPU_EXCHANGE_H
#define STEPAF_TEST_GPU_EXCHANGE_H

#include <stepaf/stream.h>

#include "gpu/kernels.h"
#include "mpi/harness.h"

enum { GX_TENSORS = 4, GX_PEERS = 24, GX_ALL = GX_TENSORS * GX_PEERS };
_Static_assert((int)GX_ALL <= (int)GX_PIECES, "an operation is one launch");

/* Where a test's memory comes from. */
enum gx_memory {
    GX_LIBRARY, /* stepaf_alloc */
    GX_MALLOC,  /* cudaMalloc, a part of it registered */
    GX_POOL,    /* cudaMallocAsync */
    GX_VMM,     /* mapped by the driver's calls, not to be exported */
    GX_VMM_FD,  /* the same, can be exported as a file descriptor */
    GX_HOST,    /* stepaf_alloc, in host memory */
    GX_HEAP,    /* host memory of the caller's, registered */
    GX_ARENA,   /* parts of one large registration, as of an allocator that keeps what it frees */
    GX_MEMORIES
};

/* What a plan looks like. Sizes are the largest. */
struct gx_shape {
    unsigned depth;
    int n_push, n_pull; /* 0 .. GX_TENSORS; pulls for each peer */
    size_t push[GX_TENSORS], pull[GX_TENSORS];
    enum gx_memory memory;
    int host_source;  /* 1 + the tensor, each way, whose sources are in host memory; 0: none */
    bool own_receive; /* FFN ranks bring their receive buffers, of the same memory */
    unsigned skew;    /* bytes that every place is beside an allocation's start */
};

/* One side of a plan. */
struct gx_plan {
    struct hs_job *job;
    stepaf_context_h ctx;
    int id;
    struct gx_shape shape;
    stepaf_plan_h handle;
    cudaStream_t stream; /* of the plan's own; calls may name another */
    struct gx_tally *tally;
    unsigned char *source[GX_PEERS * GX_TENSORS]; /* attention: n_push; FFN: peers * n_pull, of
                                                   * slot 0 */
    unsigned char *target[GX_PEERS * GX_TENSORS]; /* attention: pulls, of slot 0 */
    uint32_t n_sent, n_seen; /* operations that the host has enqueued since the commit */
    unsigned long long done; /* the test's own count, over all commits */
    bool fixed;              /* every operation has the largest sizes */
    uint64_t seed;           /* of sizes */
    bool even;               /* every answer has the largest size, less so many bytes */
    uint32_t less;
};

/* ---- device.c: the GPU ---- */

/* Check a CUDA call. */
bool gx_check_cuda(const char *file, int line, const char *call, cudaError_t error);
#define GX_CUDA(call_) gx_check_cuda(__FILE__, __LINE__, #call_, (call_))

/* Take GPU number rank modulo n of the node, and load what the test needs; with --own 1 the process
 * sees no other. False, and a SKIP, if there are fewer than --gpus N (1). */
bool gx_device(struct hs_job *job);
/* Whether several ranks of the job share a GPU: they take turns of milliseconds. */
bool gx_shared(const struct hs_job *job);
/* A count of operations: as said, or a part of it where ranks share a GPU (all with TEST_FULL) or
 * builds are slow. */
long long gx_scaled(const struct hs_job *job, long long n, long long part);
/* gx_device and hs_open. */
bool gx_open(struct hs_job *job);

/* A stream of this GPU; with --sms N one of N multiprocessors. */
cudaStream_t gx_stream(void);
/* Have gx_stream make such; false, perhaps with a SKIP, if that cannot be. */
bool gx_green(int n_sms);
/* Such a stream; NULL where gx_green was not called. */
cudaStream_t gx_green_stream(void);
/* cudaMemcpy from pageable memory, and cudaMemset, return before the GPU has done them, and streams of
 * gx_stream do not wait for that. Wait for it. */
bool gx_settle(void);
/* Wait until @a stream has nothing left, and say so if that takes longer than 30 s. */
bool gx_sync_stream(cudaStream_t stream, const char *what);

/* ---- memory.c ---- */

/* Memory of @a kind, of which [*ptr_p, +bytes) is registered; it stays until the process ends.
 * *ptr_p is @a skew bytes beside an aligned address. */
bool gx_memory(stepaf_context_h ctx, enum gx_memory kind, size_t bytes, unsigned skew,
               unsigned char **ptr_p);
const char *gx_memory_name(enum gx_memory kind);
/* Whether the driver can make memory of this kind here. */
bool gx_memory_works(enum gx_memory kind);

/* ---- exchange.c, plan.c ---- */

/* Declare the keys of plan @a id; bring the memory; make the plan. All before the commit. */
bool gx_plan_make(struct hs_job *job, stepaf_context_h ctx, int id, const struct gx_shape *shape,
                  struct gx_plan *plan);
/* Make a plan by the call of this rank's role. At FFN ranks @a push names the keys to receive. */
stepaf_status_t gx_plan_create(stepaf_context_h ctx, const stepaf_tensor_t *push, int n_push,
                               const stepaf_tensor_t *pull, int n_pull, uint32_t flags,
                               stepaf_plan_h *plan_p);
/* The same, one by one; begin comes first. gx_plan_tensors says what the plan is made of: push and
 * pull have room for GX_TENSORS and GX_PEERS * GX_TENSORS. */
bool gx_plan_begin(struct hs_job *job, stepaf_context_h ctx, int id, const struct gx_shape *shape,
                   struct gx_plan *plan);
bool gx_plan_declare(struct gx_plan *plan);
bool gx_plan_memory(struct gx_plan *plan);
void gx_plan_tensors(const struct gx_plan *plan, stepaf_tensor_t *push, stepaf_tensor_t *pull,
                     int *n_pull_p);
uint64_t gx_key(int id, int direction, int index);
/* After each commit, before anybody's first operation: poison what is received into, and compare
 * what the library says of it. Operations, and so slots, begin with 0. */
bool gx_plan_ready(struct gx_plan *plan);
/* Operations are counted from a common number again, after some that were lost. */
bool gx_plan_restart(struct gx_plan *plan, unsigned long long from);
void gx_plan_end(struct gx_plan *plan);

/* Enqueue. Attention ranks start and wait, FFN ranks receive and respond; make the bytes before,
 * check them after. A @a stream of NULL is the plan's own. */
stepaf_status_t gx_start(struct gx_plan *plan, cudaStream_t stream, stepaf_request_h *request_p);
stepaf_status_t gx_wait(struct gx_plan *plan, cudaStream_t stream);
stepaf_status_t gx_recv(struct gx_plan *plan, cudaStream_t stream);
stepaf_status_t gx_respond(struct gx_plan *plan, cudaStream_t stream);
/* Check what a completed request has brought: the wait without the wait. */
bool gx_look(struct gx_plan *plan, cudaStream_t stream);

/* Which way: what attention ranks push, or what they pull. */
enum { GX_PUSH, GX_PULL };
/* Name a tensor: of a plan, a direction, the ranks (a peer by its index, -1: none in particular),
 * an index; and say how large it is in operation @a n. */
uint64_t gx_place(const struct gx_plan *plan, int direction, int peer, int index);
uint32_t gx_size(const struct gx_plan *plan, int direction, int peer, int index, uint32_t n);
/* Whether memory of this kind is the host's. */
bool gx_memory_on_host(enum gx_memory kind);

/* The keys and sizes of what goes out with operation @a n; returns how many tensors. */
int gx_out(const struct gx_plan *plan, uint32_t n, stepaf_tensor_t *tensors);

/* One operation from either side: start and wait, or receive and respond. */
bool gx_exchange(struct gx_plan *plan, cudaStream_t stream);
/* Wait for the plan's stream. */
bool gx_sync(struct gx_plan *plan);
/* Read the tally; everything that was enqueued has come, and no byte was wrong. */
bool gx_verify(struct gx_plan *plan, unsigned long long operations);

#endif
