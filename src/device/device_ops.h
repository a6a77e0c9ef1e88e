/* SPDX-License-Identifier: Apache-2.0 */
/* A device that computes on tensors: a table of operations, without the types of the device's own
 * library.
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

/* Facts of an open GPU. */
struct stepaf_gpu_facts {
    uint8_t uuid[STEPAF_GPU_UUID];
    char name[STEPAF_GPU_NAME]; /* "NVIDIA H200" */
    char bus[STEPAF_GPU_BUS];   /* "0000:1b:00.0" */
    int ordinal;                /* in this process, among devices of its kind */
    uint32_t n_sms;
    bool unshared; /* its memory cannot be exported: the registry sets it */
    bool untimed;  /* it takes no timestamps: likewise */
};

/* What a pointer points to. */
struct stepaf_gpu_place {
    bool is_device; /* false: host memory, pinned or not; the rest is not set, but for managed */
    int ordinal;
    const char *device; /* name of the device that it belongs to; the registry sets it */
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
    uint64_t process;               /* the process that it belongs to, a random number; 0: none */
    uint64_t address;               /* of the piece, in that process */
};

/* What the GPU says of NICs that read and write its memory directly. */
struct stepaf_gpu_rdma {
    char no_dmabuf[STEPAF_GPU_REASON]; /* why memory cannot be exported as dma-buf; "": it can */
    char
        no_peermem[STEPAF_GPU_REASON]; /* why a driver's peer-memory module cannot have it, or "" */
    /* A NIC's writes may still be in flight to the GPU when the host receives their completion:
     * flush them before the GPU may read them. */
    bool flush;
    /* The device has two ways to its memory, as on Grace: PCIe, by which NICs write, and another
     * by which the host learns of the writes. The device's own flush, and what it says of ordering,
     * hold for one of them only; a NIC's read flushes what the NIC has written. */
    bool two_ways;
    char no_flush[STEPAF_GPU_REASON]; /* why a flush that is required is not possible, or "" */
};

/* A word of GPU memory, and what to store there. */
struct stepaf_gpu_word {
    uint64_t *at;
    uint64_t value;
};
enum { STEPAF_GPU_WORDS = STEPAF_KERNEL_TENSORS };

/* The table. An operation that fails returns a status with its sentence (stepaf_error_set), and
 * leaves nothing behind. Any thread may call any operation. One open device is used by one thread
 * at a time, except operations "on a stream", which several threads may call at the same time for
 * different streams.
 *
 * An operation that is not marked "optional" is required: open fails without it. Where an optional
 * operation is NULL, the registry puts in the default that its comment describes, so that callers
 * need no check. */
struct stepaf_device_ops {
    const char *name;           /* "cuda" */
    stepaf_mem_kind_t mem_kind; /* of what alloc returns and classify finds */

    /* ---- finding one ---- */

    /* Whether this process can use a device at all. If not, @a reason (STEPAF_REASON_MAX) says
     * why. */
    bool (*probe)(char *reason);
    /* Whether there may be a device, without what takes long: false where there is certainly none
     * for this process. Optional; default: what probe says. */
    bool (*likely)(void);
    /* Open the device that is current to the calling thread, or the first. Load everything now that
     * could make a launch wait. Fill in facts; the registry fills in ops. STEPAF_ERR_UNSUPPORTED
     * with the reason: it cannot be used here, and the next device of the registry is tried. */
    stepaf_status_t (*open)(struct stepaf_gpu **gpu_p);
    void (*close)(struct stepaf_gpu *gpu); /* also what is still imported */
    /* Describe what is at @a ptr, if it is this device's or managed by it; else leave @a place_p,
     * which is zeroed, alone. Works without an open device, and takes no time in a process that has
     * not used one. */
    void (*classify)(const void *ptr, struct stepaf_gpu_place *place_p);

    /* ---- memory: set-up only, may wait for the device ---- */

    /* Memory of the device: zeroed, aligned to 512 bytes at least, shareable if there is an
     * export. */
    stepaf_status_t (*alloc)(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p);
    void (*free)(struct stepaf_gpu *gpu, void *ptr); /* NULL: nothing */
    /* Zeroed host memory that the device reads and writes at the same address. */
    stepaf_status_t (*alloc_host)(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p);
    void (*free_host)(struct stepaf_gpu *gpu, void *ptr); /* NULL: nothing */
    /* Let the device read and write host memory that already exists, at the same address; unpin
     * ends that. *own_p: false if the device could before, because of somebody else, who also ends
     * it. */
    stepaf_status_t (*pin)(struct stepaf_gpu *gpu, void *ptr, size_t bytes, bool *own_p);
    void (*unpin)(struct stepaf_gpu *gpu, void *ptr);
    /* Write memory of the device. Done on return, whatever streams wait for. */
    stepaf_status_t (*write)(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes);

    /* ---- memory of other processes: set-up only ---- */

    /* Make a piece of memory known to other processes; map one of theirs. Mappings of the same
     * allocation are shared and counted. Offset and bytes come from a peer and must be checked.
     * Optional, all three or none; default: no memory can be shared, so that peers write to host
     * memory. */
    stepaf_status_t (*export)(struct stepaf_gpu *gpu, const void *ptr,
                              struct stepaf_gpu_export *export_p);
    stepaf_status_t (*import)(struct stepaf_gpu *gpu, const struct stepaf_gpu_export *exported,
                              void **ptr_p);
    void (*unimport)(struct stepaf_gpu *gpu, void *ptr);

    /* ---- NICs that read and write the device's memory directly ---- */

    /* What the device says of them. Optional; default: they cannot. */
    const struct stepaf_gpu_rdma *(*rdma)(struct stepaf_gpu *gpu);
    /* Export a piece of memory as dma-buf, in whole pages of the host: a file, which the caller
     * closes, and the offset of the piece in it. @a by_pcie: use PCIe of two ways;
     * STEPAF_ERR_UNSUPPORTED where that cannot be selected. Optional, where rdma says so. */
    stepaf_status_t (*dmabuf)(struct stepaf_gpu *gpu, const void *ptr, size_t bytes, bool by_pcie,
                              int *fd_p, uint64_t *offset_p);
    /* Make synchronous copies and fills of the allocation at @a ptr really synchronous, since a NIC
     * that reads the memory next knows nothing of copies in flight. Optional; default: they are. */
    stepaf_status_t (*sync_memops)(struct stepaf_gpu *gpu, const void *ptr);
    /* Call @a job with the device current to the thread, as libraries require that register its
     * memory. Optional; default: it always is current. */
    stepaf_status_t (*inside)(struct stepaf_gpu *gpu, void (*job)(void *arg), void *arg);
    /* Wait until the device sees all that NICs have written to it. Optional; default: it does. */
    stepaf_status_t (*flush)(struct stepaf_gpu *gpu);

    /* ---- on a stream: in order, never block except for space in the stream ---- */

    /* Whether @a stream is being captured into a graph. STEPAF_ERR_INVALID: it is no stream of this
     * device. Optional; default: there are no graphs. */
    stepaf_status_t (*capturing)(struct stepaf_gpu *gpu, void *stream, bool *capturing_p);
    /* Launch a kernel (kernels.h says what each does); the args are copied. @a behind: it may begin
     * when the blocks of the kernel that was launched just before let it, instead of when they have
     * ended; a device may ignore this. */
    stepaf_status_t (*launch)(struct stepaf_gpu *gpu, enum stepaf_kernel kernel,
                              const struct stepaf_kernel_args *args, uint32_t blocks,
                              uint32_t threads, bool behind, void *stream);
    stepaf_status_t (*launch_any)(struct stepaf_gpu *gpu, enum stepaf_any_kernel kernel,
                                  const struct stepaf_any_args *args, uint32_t blocks,
                                  uint32_t threads, bool behind, void *stream);
    /* Copy with a copy engine: between pieces of the device's memory, its own or imported, or
     * between one and pinned host memory. */
    stepaf_status_t (*copy)(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes,
                            void *stream);
    /* Store at most STEPAF_GPU_WORDS words, in order, when all work in the stream is done and
     * visible. */
    stepaf_status_t (*store)(struct stepaf_gpu *gpu, const struct stepaf_gpu_word *words,
                             uint32_t n, void *stream);

    /* Launch a kernel that takes timestamps. Optional, both or none; default: no timestamps. */
    stepaf_status_t (*timestamp)(struct stepaf_gpu *gpu, enum stepaf_times_kernel kernel,
                                 const struct stepaf_timestamp_args *args, void *stream);
    /* Launch the kernel that tells the time, by the clock of the timestamps. */
    stepaf_status_t (*tell_time)(struct stepaf_gpu *gpu, const struct stepaf_clock_args *args,
                                 void *stream);

    /* A mark in a stream. test: STEPAF_OK: the stream has passed it; STEPAF_INPROGRESS: not yet. */
    stepaf_status_t (*event_create)(struct stepaf_gpu *gpu, void **event_p);
    void (*event_destroy)(struct stepaf_gpu *gpu, void *event); /* NULL: nothing */
    stepaf_status_t (*event_record)(struct stepaf_gpu *gpu, void *event, void *stream);
    stepaf_status_t (*event_await)(struct stepaf_gpu *gpu, void *event, void *stream);
    stepaf_status_t (*event_test)(struct stepaf_gpu *gpu, void *event);

    /* A stream of the library's own, which waits for no other; sync waits until it is empty. */
    stepaf_status_t (*stream_create)(struct stepaf_gpu *gpu, void **stream_p);
    void (*stream_destroy)(struct stepaf_gpu *gpu, void *stream); /* NULL: nothing */
    stepaf_status_t (*stream_sync)(struct stepaf_gpu *gpu, void *stream);
};

/* ops is a complete copy of the table: the costly operations are called often, and a copy saves one
 * load. */
struct stepaf_gpu {
    struct stepaf_device_ops ops;
    struct stepaf_gpu_facts facts;
};

/* All devices of this build, best first; ends with NULL. Tests put others in their place. */
extern const struct stepaf_device_ops *const *stepaf_devices;

#endif
