/* SPDX-License-Identifier: Apache-2.0 */
/* Memory as a transport sees it: this process's, and a peer's. */
#ifndef STEPAF_TRANSPORT_MEM_H
#define STEPAF_TRANSPORT_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/types.h>

struct stepaf_gpu;

enum { STEPAF_MAX_TRANSPORTS = 8 };

/* A piece of this process's memory. Owned by the core; a transport sees host memory only, unless it
 * takes GPU memory (STEPAF_TRANSPORT_GPU). */
struct stepaf_mem {
    uint32_t id; /* never used again for another one within the context */
    uint8_t *base;
    size_t bytes;
    stepaf_mem_kind_t kind;
    int fd;    /* file that holds it from offset 0, or -1 */
    bool lent; /* host memory of the caller's: it may be unmapped or read-only by now */
    struct stepaf_gpu *gpu; /* GPU memory: whose */
    /* What each transport's reg_mem has made of it, by the transport's index; NULL: nothing. */
    void *registration[STEPAF_MAX_TRANSPORTS];
};

/* Where a peer's bytes go. */
struct stepaf_target {
    uint8_t *at; /* NULL: there is no such place */
    /* That the place is in. Of GPU memory, at is in the bounce buffer, or NULL where there is none;
     * a transport that has registered it takes the place in the memory itself. */
    const struct stepaf_mem *mem;
};

/* A piece of a peer's memory. Made by import_mem; a transport puts its own after this. */
struct stepaf_rmem {
    uint32_t id;
    uint64_t bytes;
};

#endif
