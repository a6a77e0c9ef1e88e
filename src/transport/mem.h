/* SPDX-License-Identifier: Apache-2.0 */
/* Memory as a transport sees it: memory of this process, and of a peer. */
#ifndef STEPAF_TRANSPORT_MEM_H
#define STEPAF_TRANSPORT_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/types.h>

struct stepaf_gpu;

enum { STEPAF_MAX_TRANSPORTS = 8 };

/* A piece of this process's memory. Owned by the core. A transport sees only host memory, unless it
 * accepts GPU memory (STEPAF_TRANSPORT_GPU). */
struct stepaf_mem {
    uint32_t id; /* never reused within the context */
    uint8_t *base;
    size_t bytes;
    stepaf_mem_kind_t kind;
    int fd;                 /* file that holds it from offset 0, or -1 */
    bool lent;              /* the caller's host memory: may be unmapped or read-only by now */
    struct stepaf_gpu *gpu; /* the GPU of GPU memory */
    /* The result of each transport's reg_mem, by the transport's index; NULL: none. */
    void *registration[STEPAF_MAX_TRANSPORTS];
};

/* The place of a peer's bytes. */
struct stepaf_target {
    uint8_t *at; /* NULL: there is no such place */
    /* The memory that contains the place. For GPU memory, at is in the bounce buffer, or NULL if
     * there is none; a transport that has registered the memory uses the place in the memory
     * itself. */
    const struct stepaf_mem *mem;
};

/* A piece of a peer's memory. Created by import_mem; a transport appends its own data. */
struct stepaf_rmem {
    uint32_t id;
    uint64_t bytes;
};

#endif
