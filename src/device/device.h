/* SPDX-License-Identifier: Apache-2.0 */
/* Shareable memory by kind, for host memory and devices. */
#ifndef STEPAF_DEVICE_DEVICE_H
#define STEPAF_DEVICE_DEVICE_H

#include <sys/types.h>

#include <stepaf/types.h>

#include "device/gpu.h"

/* Memory that another process can map. Host memory is an anonymous file, sealed so that it can
 * never shrink under a peer's mapping. A device exports its own memory. */
struct stepaf_device_mem {
    void *base;
    size_t bytes; /* as requested; host memory: rounded up to whole pages */
    int fd;       /* of host memory, else -1 */
    stepaf_mem_kind_t kind;
    struct stepaf_gpu *gpu; /* of GPU memory, else NULL */
};

/* Allocate zeroed shareable memory. @a gpu: the GPU for a device's kind; ignored for host memory.
 * Returns STEPAF_ERR_UNSUPPORTED for a kind that does not exist here, and STEPAF_ERR_NO_MEMORY with
 * the reason of the operating system or the driver. */
stepaf_status_t stepaf_device_alloc(stepaf_mem_kind_t kind, struct stepaf_gpu *gpu, size_t bytes,
                                    struct stepaf_device_mem *mem_p);
void stepaf_device_free(struct stepaf_device_mem *mem);

/* Map a peer's host memory: file descriptor @a fd of process @a pid. Returns NULL, with @a reason
 * (STEPAF_REASON_MAX), if it is gone or is not the sealed file of @a bytes that was announced. */
void *stepaf_device_map_peer(pid_t pid, int fd, size_t bytes, char *reason);

/* Check that a range of this process is memory. Returns STEPAF_ERR_INVALID if some of it is not. */
stepaf_status_t stepaf_device_check_host(const void *base, size_t bytes);

#endif
