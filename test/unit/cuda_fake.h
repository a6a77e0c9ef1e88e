/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA driver made of this process's memory, with two GPUs, that fails when it is told to. */
#ifndef STEPAF_TEST_CUDA_FAKE_H
#define STEPAF_TEST_CUDA_FAKE_H

#include "device/cuda_driver.h"

enum { CUDA_FAKE_PIECES = 64 };

/* A piece of "GPU" memory. */
struct cuda_piece {
    uint8_t *base; /* NULL: free */
    size_t bytes;
    int device;
    bool shareable;
    bool managed;
    bool opened; /* by an IPC handle: it belongs to another "process" */
};

/* What the driver knows and does. */
struct cuda_fake {
    int fail_at;    /* which call that can fail does, from 1; 0: none */
    CUresult error; /* and how */
    int n_calls;    /* that could have failed */
    int n_held;     /* contexts, modules, streams, events, pinned memory that are not given back */
    int depth;      /* contexts that are pushed */
    CUcontext current;
    bool runs; /* what is launched is done, by a thread: see cuda_kernels.h */
    CUstreamCaptureMode mode;
    CUstreamCaptureStatus capture; /* of all streams */
    CUlaunchConfig launched;       /* the last launch */
    struct stepaf_flow flow;
    struct cuda_piece pieces[CUDA_FAKE_PIECES];
};
extern struct cuda_fake cuda_fake;

/* Put it in the driver's place, as new; and take it away again. */
void cuda_fake_begin(void);
void cuda_fake_end(void);

/* Memory that the caller has from CUDA itself. Freed by the end. */
struct cuda_piece *cuda_fake_piece(size_t bytes, int device, bool shareable);
/* How many pieces there are. */
int cuda_fake_count(void);

#endif
