/* SPDX-License-Identifier: Apache-2.0 */
/* A device without a GPU: its memory is files of this machine's memory, which other processes can
 * map, its streams are queues, each with a thread (queue.h), and its kernels are C (kernels.h). It
 * fails when it is told to, and can be looked at. */
#ifndef STEPAF_TEST_CPU_DEVICE_H
#define STEPAF_TEST_CPU_DEVICE_H

#include <stdatomic.h>

#include "device/device_ops.h"

enum { CPU_PIECES = 256, CPU_WAITS = 16, CPU_WORDS = 16 };

/* A piece of the device's memory. */
struct cpu_piece {
    uint8_t *base; /* NULL: free */
    size_t bytes;
    size_t mapped;  /* bytes, with what other pieces have of it; 0: it is part of another's */
    int fd;         /* its file; -1: it is another process's, or part of a piece */
    int ordinal;    /* of the device */
    bool shareable; /* with other processes */
    bool managed;   /* by nobody in fact */
    struct stepaf_gpu *by;          /* who has imported it; NULL: it is this process's */
    unsigned uses;                  /* imports that are not given back */
    uint8_t handle[STEPAF_GPU_IPC]; /* by which it was imported */
};

/* A stream that was made to wait for an event. */
struct cpu_wait {
    void *stream;
    void *event;
    int n_launches; /* before that */
};

/* A launch. */
struct cpu_launch {
    void *stream;
    uint32_t blocks, threads;
    bool behind;
};

/* What the device knows and does. */
struct cpu_device {
    int fail_at;           /* which operation that can fail does, from 1; 0: none */
    stepaf_status_t error; /* and how */
    int n_calls;           /* that could have failed */
    int fail_export_at;    /* the same, but of exports */
    int n_exports;
    bool cut;            /* no memory of another process can be mapped */
    int n_held;          /* devices, streams, events, pinned memory that are not given back */
    bool pinned_already; /* host memory is, by somebody else */
    bool
        runs; /* what is enqueued is done, by the stream's thread; else copies at once, and no kernel */
    bool capturing;   /* all streams */
    atomic_bool busy; /* no event has come by; another thread may say otherwise */
    struct cpu_launch launched;
    int n_launches;
    int n_timestamps;                       /* launches of those kernels */
    int n_copies;                           /* that were enqueued */
    struct stepaf_timestamp_args timestamp; /* of the last of them */
    uint64_t words[CPU_WORDS]; /* of the last store by a stream: where, what, in turn */
    unsigned n_words;
    struct cpu_wait waits[CPU_WAITS]; /* the first of them */
    int n_waits;
    struct stepaf_kernel_args args;  /* of the last launch */
    struct stepaf_any_args any_args; /* of the last of those kernels */
    struct cpu_piece pieces[CPU_PIECES];
    struct stepaf_gpu_rdma rdma; /* what is said of network cards */
    bool bad_flush;              /* flushing fails */
    int n_flushes;
    void (*at_launch)(void); /* something is about to be launched; NULL: nobody is told */
    void (*at_part)(
        uint32_t part); /* a kernel that sends is about to write it; NULL: nobody is told */
};
extern struct cpu_device cpu_device;
extern const struct stepaf_device_ops stepaf_cpu_ops;

/* Have the registry name this device alone, as new; and as it was again. No stream is in use
 * then. */
void cpu_device_begin(void);
void cpu_device_end(void);

/* What time it is by the device's clock. */
uint64_t cpu_device_now_ns(void);

/* Memory that the caller has from the device itself. Freed by drop, or by the end. */
struct cpu_piece *cpu_device_piece(size_t bytes, int ordinal, bool shareable);
void cpu_device_drop(void *ptr);
/* Make two pieces of one, side by side, of which the first has @a bytes; return the second. */
struct cpu_piece *cpu_device_split(struct cpu_piece *piece, size_t bytes);
/* How many pieces there are. */
int cpu_device_count(void);

/* ---- inside ---- */

/* One more operation that can fail; @a what it is. */
stepaf_status_t cpu_device_step(const char *what);
stepaf_status_t cpu_device_hold(const char *what); /* one that gives out something */
void cpu_device_let_go(void);

/* The piece that holds @a ptr; NULL: none. */
struct cpu_piece *cpu_device_find(const void *ptr);
void cpu_device_unmap_all(struct stepaf_gpu *gpu);

/* memory.c */
stepaf_status_t cpu_alloc(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p);
void cpu_free(struct stepaf_gpu *gpu, void *ptr);
stepaf_status_t cpu_alloc_host(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p);
void cpu_free_host(struct stepaf_gpu *gpu, void *ptr);
stepaf_status_t cpu_pin(struct stepaf_gpu *gpu, void *ptr, size_t bytes, bool *own_p);
void cpu_unpin(struct stepaf_gpu *gpu, void *ptr);
stepaf_status_t cpu_write(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes);
/* share.c */
stepaf_status_t cpu_export(struct stepaf_gpu *gpu, const void *ptr,
                           struct stepaf_gpu_export *export_p);
stepaf_status_t cpu_import(struct stepaf_gpu *gpu, const struct stepaf_gpu_export *exported,
                           void **ptr_p);
void cpu_unimport(struct stepaf_gpu *gpu, void *ptr);
/* stream.c */
stepaf_status_t cpu_capturing(struct stepaf_gpu *gpu, void *stream, bool *capturing_p);
stepaf_status_t cpu_launch(struct stepaf_gpu *gpu, enum stepaf_kernel kernel,
                           const struct stepaf_kernel_args *args, uint32_t blocks, uint32_t threads,
                           bool behind, void *stream);
stepaf_status_t cpu_launch_any(struct stepaf_gpu *gpu, enum stepaf_any_kernel kernel,
                               const struct stepaf_any_args *args, uint32_t blocks,
                               uint32_t threads, bool behind, void *stream);
stepaf_status_t cpu_copy(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes,
                         void *stream);
stepaf_status_t cpu_store(struct stepaf_gpu *gpu, const struct stepaf_gpu_word *words, uint32_t n,
                          void *stream);
stepaf_status_t cpu_timestamp(struct stepaf_gpu *gpu, enum stepaf_times_kernel kernel,
                              const struct stepaf_timestamp_args *args, void *stream);
stepaf_status_t cpu_tell_time(struct stepaf_gpu *gpu, const struct stepaf_clock_args *args,
                              void *stream);
stepaf_status_t cpu_event_create(struct stepaf_gpu *gpu, void **event_p);
void cpu_event_destroy(struct stepaf_gpu *gpu, void *event);
stepaf_status_t cpu_event_record(struct stepaf_gpu *gpu, void *event, void *stream);
stepaf_status_t cpu_event_await(struct stepaf_gpu *gpu, void *event, void *stream);
stepaf_status_t cpu_event_test(struct stepaf_gpu *gpu, void *event);
stepaf_status_t cpu_stream_create(struct stepaf_gpu *gpu, void **stream_p);
void cpu_stream_destroy(struct stepaf_gpu *gpu, void *stream);
stepaf_status_t cpu_stream_sync(struct stepaf_gpu *gpu, void *stream);

#endif
