/* SPDX-License-Identifier: Apache-2.0 */
/* What a device that computes on tensors is: a table of operations, without its own library's
 * types.
 *
 * A device is a directory beside this file, a const table, and a line in the registry
 * (registry.def). Callers see gpu.h only. README.md says how to add a device. */
#ifndef STEPAF_DEVICE_DEVICE_OPS_H
#define STEPAF_DEVICE_DEVICE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/status.h>
#include <stepaf/types.h>

#include "base/error.h"
#include "device/kernels.h"

/* One open device. Each device's own structure begins with it. */
struct stepaf_gpu;

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
    int ordinal;                /* in this process, among devices of its kind */
    uint32_t n_sms;
    bool unshared; /* its memory cannot be exported: the registry's to set */
    bool untimed;  /* it takes no timestamps: likewise */
};

/* What a pointer points to. */
struct stepaf_gpu_place {
    bool is_device; /* false: host memory, pinned or not; the rest is not set, but for managed */
    int ordinal;
    const char *device; /* the name in the table of the device whose it is; the registry's to set */
    void *base; /* of the allocation that it lies in, or of the reserved addresses, which may have
                 * holes, if it is not shareable */
    size_t bytes;
    bool shareable; /* with another process, by export */
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

/* What the GPU says of network cards that read and write its memory themselves. */
struct stepaf_gpu_rdma {
    char no_dmabuf[STEPAF_GPU_REASON]; /* why memory cannot be exported as dma-buf; "": it can */
    char
        no_peermem[STEPAF_GPU_REASON]; /* why a driver's peer-memory module cannot have it, or "" */
    /* A card's writes may still be on their way to the GPU when the host hears that they are done:
     * to be flushed before the GPU may read them. */
    bool flush;
    /* The device has two ways to its memory, as on Grace: PCIe, by which cards write, and another
     * by which the host hears of it. The device's own flush, and what it says of ordering, is of
     * one of them only; a card's read flushes what it has written. */
    bool two_ways;
    char no_flush[STEPAF_GPU_REASON]; /* why that cannot be done where it is asked for, or "" */
};

/* A word of GPU memory, and what to store there. */
struct stepaf_gpu_word {
    uint64_t *at;
    uint64_t value;
};
enum { STEPAF_GPU_WORDS = STEPAF_KERNEL_TENSORS };

/* The table. A failure is a status with its sentence (stepaf_error_set), and leaves nothing behind.
 * Any thread may call any of it; one open device is used by one thread at a time, but for what is
 * "on a stream", which several threads may call at once for different streams.
 *
 * What is not marked "optional" has to be there: open is refused without it. Where an optional one
 * is NULL, the registry puts in what is said of it, so that callers ask for none. */
struct stepaf_device_ops {
    const char *name;           /* "cuda" */
    stepaf_mem_kind_t mem_kind; /* of what alloc gives out and classify finds */

    /* ---- finding one ---- */

    /* Whether this process can use one at all. If not, @a reason (STEPAF_REASON_MAX) says why. */
    bool (*probe)(char *reason);
    /* Whether there may be one, without what takes long: false where there is surely none for this
     * process. Optional: what probe says. */
    bool (*likely)(void);
    /* Open the one that is current to the calling thread, or the first: everything that could make
     * a launch wait is loaded now. Fill in facts; ops is the registry's. STEPAF_ERR_UNSUPPORTED
     * with the reason: it cannot be used here, and the next device of the registry is tried. */
    stepaf_status_t (*open)(struct stepaf_gpu **gpu_p);
    void (*close)(struct stepaf_gpu *gpu); /* also what is imported still */
    /* Say what is at @a ptr, if it is this device's or managed by it; else leave @a place_p, which
     * is zeroed, alone. Works without an open device, and takes no time in a process that has not
     * used one. */
    void (*classify)(const void *ptr, struct stepaf_gpu_place *place_p);

    /* ---- memory: set-up only, may wait for the device ---- */

    /* Memory of the device: zeroed, aligned to 512 bytes at least, shareable if there is an
     * export. */
    stepaf_status_t (*alloc)(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p);
    void (*free)(struct stepaf_gpu *gpu, void *ptr); /* NULL: nothing */
    /* Zeroed host memory that the device reads and writes at the same address. */
    stepaf_status_t (*alloc_host)(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p);
    void (*free_host)(struct stepaf_gpu *gpu, void *ptr); /* NULL: nothing */
    /* Let the device read and write host memory that exists already, at the same address; unpin
     * ends it. *own_p: false if it could before, by somebody else's doing, who also ends it. */
    stepaf_status_t (*pin)(struct stepaf_gpu *gpu, void *ptr, size_t bytes, bool *own_p);
    void (*unpin)(struct stepaf_gpu *gpu, void *ptr);
    /* Write memory of the device, and fill it with 0: done on return, whatever streams wait for. */
    stepaf_status_t (*write)(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes);
    stepaf_status_t (*zero)(struct stepaf_gpu *gpu, void *dst, size_t bytes);

    /* ---- memory of other processes: set-up only ---- */

    /* Make a piece of memory known to other processes, and map one of theirs. A mapping of the same
     * allocation is shared and counted; offset and bytes are a peer's word, to be checked.
     * Optional, all three or none: no memory can be shared, so that peers write to host memory. */
    stepaf_status_t (*export)(struct stepaf_gpu *gpu, const void *ptr,
                              struct stepaf_gpu_export *export_p);
    stepaf_status_t (*import)(struct stepaf_gpu *gpu, const struct stepaf_gpu_export *exported,
                              void **ptr_p);
    void (*unimport)(struct stepaf_gpu *gpu, void *ptr);

    /* ---- network cards that read and write the device's memory themselves ---- */

    /* What the device says of them. Optional: they cannot. */
    const struct stepaf_gpu_rdma *(*rdma)(struct stepaf_gpu *gpu);
    /* Export a piece of memory as dma-buf, by whole pages of the host: a file, which the caller
     * closes, and where in it the piece begins. @a by_pcie: of two ways that one,
     * STEPAF_ERR_UNSUPPORTED where it cannot be told. Optional, where rdma says so. */
    stepaf_status_t (*dmabuf)(struct stepaf_gpu *gpu, const void *ptr, size_t bytes, bool by_pcie,
                              int *fd_p, uint64_t *offset_p);
    /* Have synchronous copies and fills of the allocation at @a ptr be so in fact, since a card
     * that reads the memory next knows nothing of those under way. Optional: they are. */
    stepaf_status_t (*sync_memops)(struct stepaf_gpu *gpu, const void *ptr);
    /* Call @a job where the device is current to the thread, as libraries need it that register its
     * memory. Optional: it always is. */
    stepaf_status_t (*inside)(struct stepaf_gpu *gpu, void (*job)(void *arg), void *arg);
    /* Wait until the device sees all that cards have written to it. Optional: it does. */
    stepaf_status_t (*flush)(struct stepaf_gpu *gpu);

    /* ---- on a stream: in order, never block but for room in the stream ---- */

    /* Whether @a stream is being captured into a graph. STEPAF_ERR_INVALID: it is no stream of this
     * device. Optional: there are no graphs. */
    stepaf_status_t (*capturing)(struct stepaf_gpu *gpu, void *stream, bool *capturing_p);
    /* Launch a kernel (kernels.h says what each does); the args are copied. @a behind: it may begin
     * when the blocks of the kernel that was launched just before let it, instead of when they have
     * ended; a device may take no notice. */
    stepaf_status_t (*launch)(struct stepaf_gpu *gpu, enum stepaf_kernel kernel,
                              const struct stepaf_kernel_args *args, uint32_t blocks,
                              uint32_t threads, bool behind, void *stream);
    stepaf_status_t (*launch_any)(struct stepaf_gpu *gpu, enum stepaf_any_kernel kernel,
                                  const struct stepaf_any_args *args, uint32_t blocks,
                                  uint32_t threads, bool behind, void *stream);
    /* Copy by a copy engine: between pieces of the device's memory, its own or imported, or between
     * one and pinned host memory. */
    stepaf_status_t (*copy)(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes,
                            void *stream);
    /* Store at most STEPAF_GPU_WORDS words, in order, when all that the stream holds is done and
     * can be seen. */
    stepaf_status_t (*store)(struct stepaf_gpu *gpu, const struct stepaf_gpu_word *words,
                             uint32_t n, void *stream);

    /* Launch a kernel that takes timestamps. Optional, both or none: there are none. */
    stepaf_status_t (*timestamp)(struct stepaf_gpu *gpu, enum stepaf_times_kernel kernel,
                                 const struct stepaf_timestamp_args *args, void *stream);
    /* Launch the one that tells the time, by the clock of the timestamps. */
    stepaf_status_t (*tell_time)(struct stepaf_gpu *gpu, const struct stepaf_clock_args *args,
                                 void *stream);

    /* A mark in a stream. test: STEPAF_OK, the stream has come by; STEPAF_INPROGRESS. */
    stepaf_status_t (*event_create)(struct stepaf_gpu *gpu, void **event_p);
    void (*event_destroy)(struct stepaf_gpu *gpu, void *event); /* NULL: nothing */
    stepaf_status_t (*event_record)(struct stepaf_gpu *gpu, void *event, void *stream);
    stepaf_status_t (*event_await)(struct stepaf_gpu *gpu, void *event, void *stream);
    stepaf_status_t (*event_test)(struct stepaf_gpu *gpu, void *event);

    /* A stream of the library's own, that waits for no other; sync waits until it is empty. */
    stepaf_status_t (*stream_create)(struct stepaf_gpu *gpu, void **stream_p);
    void (*stream_destroy)(struct stepaf_gpu *gpu, void *stream); /* NULL: nothing */
    stepaf_status_t (*stream_sync)(struct stepaf_gpu *gpu, void *stream);
};

/* The table is a copy, complete: what costs most is called often, and one load less. */
struct stepaf_gpu {
    struct stepaf_device_ops ops;
    struct stepaf_gpu_facts facts;
};

/* All devices of this build, best first; NULL ends them. Tests put others in their place. */
extern const struct stepaf_device_ops *const *stepaf_devices;

#endif
