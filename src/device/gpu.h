/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU, without CUDA's types: what the engine knows of one.
 *
 * cuda/ implements this by the driver's API, which it looks up at run time: the same library runs
 * where there is no GPU. A build without the CUDA toolkit has none.c, where nothing is ever open. */
#ifndef STEPAF_DEVICE_GPU_H
#define STEPAF_DEVICE_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/status.h>

#include "base/error.h"
#include "device/kernels.h"

struct stepaf_gpu; /* one device, its primary context, and the kernels in it */

enum {
    STEPAF_GPU_UUID = 16,
    STEPAF_GPU_NAME = 64,
    STEPAF_GPU_BUS = 16,
    STEPAF_GPU_IPC = 64,
    STEPAF_GPU_REASON = 96
};

/* What is known of an open GPU. */
struct stepaf_gpu_facts {
    uint8_t uuid[STEPAF_GPU_UUID];
    char name[STEPAF_GPU_NAME]; /* "NVIDIA H200" */
    char bus[STEPAF_GPU_BUS];   /* "0000:1b:00.0" */
    int ordinal;                /* in this process */
    uint32_t n_sms;
};

/* What a pointer points to. */
struct stepaf_gpu_place {
    bool is_device; /* false: host memory, pinned or not; the rest is not set */
    int ordinal;
    void *base; /* of the allocation that it lies in, or of the reserved addresses, which may have
                 * holes, if it is not shareable */
    size_t bytes;
    bool shareable; /* by an IPC handle */
    bool managed;   /* moves between host and GPU as it is touched */
};

/* A piece of GPU memory for another process. Plain bytes. */
struct stepaf_gpu_export {
    uint8_t handle[STEPAF_GPU_IPC]; /* of the whole allocation */
    uint64_t offset;                /* of the piece in it */
    uint64_t bytes;                 /* from there to the end of the allocation */
    uint64_t process;               /* which process's it is, a random number */
    uint64_t address;               /* of the piece, in that process */
};

/* Whether this process can use a GPU at all. If not, @a reason (STEPAF_REASON_MAX) says why. */
bool stepaf_gpu_probe(char *reason);

/* Whether there may be one, without asking the driver, whose start takes long: false where there is
 * surely none for this process. */
bool stepaf_gpu_likely(void);

/* Open the GPU that is current to the calling thread, or device 0: context and kernels, all loaded
 * now. STEPAF_ERR_UNSUPPORTED with the reason if there is none. */
stepaf_status_t stepaf_gpu_open(struct stepaf_gpu **gpu_p);
void stepaf_gpu_close(struct stepaf_gpu *gpu);
const struct stepaf_gpu_facts *stepaf_gpu_facts(const struct stepaf_gpu *gpu);

/* Classify @a ptr. Works without an open GPU, and takes no time where the process has no CUDA; host
 * memory for all that CUDA does not know. */
void stepaf_gpu_classify(const void *ptr, struct stepaf_gpu_place *place_p);

/* Memory of the GPU, zeroed, shareable, aligned to 512 bytes at least. */
stepaf_status_t stepaf_gpu_alloc(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p);
void stepaf_gpu_free(struct stepaf_gpu *gpu, void *ptr);
/* Zeroed host memory that the GPU reads and writes at the same address. */
stepaf_status_t stepaf_gpu_alloc_host(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p);
void stepaf_gpu_free_host(struct stepaf_gpu *gpu, void *ptr);

/* Let the GPU read and write host memory that exists already, at the same address; unpin ends it.
 * Waits for the GPU. *own_p: false if it could before, by somebody else's doing, who also ends it. */
stepaf_status_t stepaf_gpu_pin(struct stepaf_gpu *gpu, void *ptr, size_t bytes, bool *own_p);
void stepaf_gpu_unpin(struct stepaf_gpu *gpu, void *ptr);

/* Write and read GPU memory now. Set-up only: waits for it. */
stepaf_status_t stepaf_gpu_write(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes);
stepaf_status_t stepaf_gpu_zero(struct stepaf_gpu *gpu, void *dst, size_t bytes);

/* Make a piece of memory known to other processes, and map one of theirs. A mapping of the same
 * allocation is shared and counted. */
stepaf_status_t stepaf_gpu_export(struct stepaf_gpu *gpu, const void *ptr,
                                  struct stepaf_gpu_export *export_p);
stepaf_status_t stepaf_gpu_import(struct stepaf_gpu *gpu, const struct stepaf_gpu_export *exported,
                                  void **ptr_p);
void stepaf_gpu_unimport(struct stepaf_gpu *gpu, void *ptr);

/* ---- network cards that read and write the GPU's memory themselves ---- */

/* What the GPU says of them, by its device attributes (CUDA Driver API, CUdevice_attribute). */
struct stepaf_gpu_rdma {
    char no_dmabuf[STEPAF_GPU_REASON]; /* why memory cannot be exported as dma-buf; "": it can */
    char
        no_peermem[STEPAF_GPU_REASON]; /* why a driver's peer-memory module cannot have it, or "" */
    /* A card's writes may still be on their way to the GPU when the host hears that they are done
     * (GPU_DIRECT_RDMA_WRITES_ORDERING below OWNER): to be flushed before the GPU may read them. */
    bool flush;
    char no_flush[STEPAF_GPU_REASON]; /* why that cannot be done where it is asked for, or "" */
};
const struct stepaf_gpu_rdma *stepaf_gpu_rdma(struct stepaf_gpu *gpu);

/* Export a piece of memory as dma-buf: a file, which the caller closes, and where in it the piece
 * begins. It is exported by whole pages of the host, which is what CUDA asks for
 * (cuMemGetHandleForAddressRange). */
stepaf_status_t stepaf_gpu_dmabuf(struct stepaf_gpu *gpu, const void *ptr, size_t bytes, int *fd_p,
                                  uint64_t *offset_p);
/* Have synchronous copies and fills of the allocation at @a ptr be so in fact: some return before
 * they are done (CUDA Driver API, "API synchronization behavior"), and a card that reads the memory
 * next knows nothing of that (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS). */
stepaf_status_t stepaf_gpu_sync_memops(struct stepaf_gpu *gpu, const void *ptr);
/* Wait until the GPU sees all that cards have written to it (cuFlushGPUDirectRDMAWrites). */
stepaf_status_t stepaf_gpu_flush(struct stepaf_gpu *gpu);

/* One copy of several. */
struct stepaf_gpu_piece {
    void *dst;
    const void *src;
    size_t bytes;
};
/* Copy between host and GPU, on a stream that waits for no other, and wait for the copies. */
stepaf_status_t stepaf_gpu_move(struct stepaf_gpu *gpu, const struct stepaf_gpu_piece *pieces,
                                uint32_t n);

/* ---- on a stream: never block ---- */

/* Whether @a stream is being captured. STEPAF_ERR_INVALID: it is no stream of this GPU. */
stepaf_status_t stepaf_gpu_capturing(struct stepaf_gpu *gpu, void *stream, bool *capturing_p);

/* Launch a kernel; @a flow is copied. @a behind: as the programmatic successor of the kernel that
 * was launched just before. */
stepaf_status_t stepaf_gpu_launch(struct stepaf_gpu *gpu, enum stepaf_kernel kernel,
                                  const struct stepaf_flow *flow, uint32_t blocks, uint32_t threads,
                                  bool behind, void *stream);
stepaf_status_t stepaf_gpu_launch_any(struct stepaf_gpu *gpu, enum stepaf_any_kernel kernel,
                                      const struct stepaf_any_flow *flow, uint32_t blocks,
                                      uint32_t threads, bool behind, void *stream);
/* Copy by a copy engine: between pieces of GPU memory, this one's or imported. */
stepaf_status_t stepaf_gpu_copy(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes,
                                void *stream);

/* A word of GPU memory, and what to store there. */
struct stepaf_gpu_word {
    uint64_t *at;
    uint64_t value;
};
enum { STEPAF_GPU_WORDS = STEPAF_FLOW_LANES };
/* Store at most STEPAF_GPU_WORDS words, in order, when all that the stream holds is done and can be
 * seen. No kernel is needed for it. */
stepaf_status_t stepaf_gpu_store(struct stepaf_gpu *gpu, const struct stepaf_gpu_word *words,
                                 uint32_t n, void *stream);

/* A mark in a stream. */
stepaf_status_t stepaf_gpu_event_create(struct stepaf_gpu *gpu, void **event_p);
void stepaf_gpu_event_destroy(struct stepaf_gpu *gpu, void *event);
stepaf_status_t stepaf_gpu_event_record(struct stepaf_gpu *gpu, void *event, void *stream);
stepaf_status_t stepaf_gpu_event_await(struct stepaf_gpu *gpu, void *event, void *stream);
/* STEPAF_OK: the stream has come by; STEPAF_INPROGRESS. */
stepaf_status_t stepaf_gpu_event_test(struct stepaf_gpu *gpu, void *event);

/* A stream of the library's own, that waits for no other. */
stepaf_status_t stepaf_gpu_stream_create(struct stepaf_gpu *gpu, void **stream_p);
void stepaf_gpu_stream_destroy(struct stepaf_gpu *gpu, void *stream);
stepaf_status_t stepaf_gpu_stream_sync(struct stepaf_gpu *gpu, void *stream);

#endif
