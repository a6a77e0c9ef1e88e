/* SPDX-License-Identifier: Apache-2.0 */
/* Memory by kind. Host memory only, so far: the table grows by a kind when its transport comes. */
#ifndef STEPAF_DEVICE_DEVICE_H
#define STEPAF_DEVICE_DEVICE_H

#include <stepaf/types.h>

/* Memory that another process can map: an anonymous file, sealed so that it can never shrink
 * under a peer's mapping. */
struct stepaf_device_mem {
    void *base;
    size_t bytes; /* as asked for, rounded up to whole pages */
    int fd;
};

/* Allocate zeroed shareable memory. STEPAF_ERR_UNSUPPORTED for a kind that this build has not,
 * STEPAF_ERR_NO_MEMORY with the operating system's reason. */
stepaf_status_t stepaf_device_alloc(stepaf_mem_kind_t kind, size_t bytes,
                                    struct stepaf_device_mem *mem_p);

void stepaf_device_free(struct stepaf_device_mem *mem);

#endif
