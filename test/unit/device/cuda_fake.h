/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA driver made of this process's memory, with two GPUs, that fails when it is told to. */
#ifndef STEPAF_TEST_CUDA_FAKE_H
#define STEPAF_TEST_CUDA_FAKE_H

#include "device/cuda/driver.h"
#include "device/gpu.h"

enum { CUDA_FAKE_PIECES = 256, CUDA_FAKE_WAITS = 16, CUDA_FAKE_WORDS = 16 };

/* A piece of "GPU" memory. */
struct cuda_piece {
    uint8_t *base; /* NULL: free */
    size_t bytes;
    int device;
    bool shareable;
    bool managed;
    bool opened;  /* by an IPC handle: it belongs to another "process" */
    bool op_peer; /* of the memory of the piece before */
};

/* A stream that was made to wait for an event. */
struct cuda_wait {
    CUstream stream;
    CUevent event;
    int n_launches; /* before that */
};

/* What the driver knows and does. */
struct cuda_fake {
    int fail_at;     /* which call that can fail does, from 1; 0: none */
    CUresult error;  /* and how */
    int n_calls;     /* that could have failed */
    int fail_ipc_at; /* the same, but of those that ask for an IPC handle */
    int n_ipc;
    int n_held; /* contexts, modules, streams, events, pinned memory that are not given back */
    CUstreamCaptureStatus capture; /* of all streams */
    CUlaunchConfig launched;       /* the last launch */
    int n_launches;
    int n_copies;                    /* that were enqueued */
    uint64_t words[CUDA_FAKE_WORDS]; /* of the last store by a stream: where, what, in turn */
    unsigned n_words;
    struct cuda_wait waits[CUDA_FAKE_WAITS]; /* the first of them */
    bool busy;                               /* no event has come by */
    int n_waits;
    struct stepaf_kernel_args args;  /* of the last launch */
    struct stepaf_any_args any_args; /* of the last of those kernels */
    struct cuda_piece pieces[CUDA_FAKE_PIECES];
    /* network cards: cuda_fake_rdma.c */
    bool has_dmabuf;
    bool has_rdma;
    int ordering;
    int flush_options;
    bool two_ways;                 /* to its memory, */
    bool knows_pcie;               /* of which the driver can export that by PCIe */
    unsigned long long last_flags; /* of an export */
    int last_fd;                   /* that was exported */
    int n_flushes;                 /* of cards' writes */
    int n_synced;                  /* allocations whose copies are synchronous */
    bool bad_flush;                /* flushing fails */
};
extern struct cuda_fake cuda_fake;

/* What it knows of a thread. */
struct cuda_fake_thread {
    int depth; /* contexts that are pushed */
    CUcontext current;
    CUstreamCaptureMode mode;
};
extern _Thread_local struct cuda_fake_thread cuda_fake_thread;

/* Put it in the driver's place, as new; and take it away again. */
void cuda_fake_begin(void);
void cuda_fake_end(void);

/* The driver is one that lacks what is newer than 11.0. */
void cuda_fake_grow_old(void);
/* Memory that the caller has from CUDA itself. Freed by the end. */
struct cuda_piece *cuda_fake_piece(size_t bytes, int device, bool shareable);
/* Make two pieces of one, side by side, of which the first has @a bytes; return the second. */
struct cuda_piece *cuda_fake_split(struct cuda_piece *piece, size_t bytes);
/* How many pieces there are. */
int cuda_fake_count(void);

/* ---- inside ---- */

/* One more call that can fail; one that gives out something, and one that takes it back. */
CUresult cuda_fake_step(void);
CUresult cuda_fake_give(void *handle_p);
CUresult cuda_fake_take(void);

/* What other files have of the driver. */
void cuda_fake_memory_fill(struct stepaf_cuda_driver *driver);
void cuda_fake_memory_end(void);
void cuda_fake_stream_fill(struct stepaf_cuda_driver *driver);
bool cuda_fake_rdma_attribute(int *value_p, CUdevice_attribute attribute);
void cuda_fake_rdma_fill(struct stepaf_cuda_driver *driver);

#endif
