/* SPDX-License-Identifier: Apache-2.0 */
/* Memory by kind: host memory is made here, a device's by its table. */
#define _GNU_SOURCE 1 /* O_PATH */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/why.h"
#include "device/device.h"

enum { HUGE_PAGE = 2 << 20, LOOK_PAGES = 4096 };

static stepaf_status_t host_alloc(size_t bytes, struct stepaf_device_mem *mem_p)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t whole = (bytes + page - 1) / page * page;
    const char *what;
    void *base;
    int fd;

    what = "memfd_create";
    stepaf_fd_begin();
    fd = stepaf_fd_end(memfd_create("stepaf", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        goto err_none;
    what = "ftruncate";
    if (stepaf_fd_resize(fd, whole))
        goto err_close;
    what = "sealing";
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        goto err_close;
    what = "mmap";
    base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        goto err_close;
    if (whole >= HUGE_PAGE)
        (void)madvise(base, whole, MADV_HUGEPAGE); /* a wish: most kernels say no for files */
    *mem_p = (struct stepaf_device_mem){base, whole, fd, STEPAF_MEM_HOST, NULL};
    return STEPAF_OK;

err_close:
    close(fd);
err_none:
    return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE,
                            "cannot allocate %zu bytes of shared memory: %s: %s", bytes, what,
                            stepaf_why(errno));
}

static void host_free(struct stepaf_device_mem *mem)
{
    munmap(mem->base, mem->bytes);
    close(mem->fd);
}

stepaf_status_t stepaf_device_alloc(stepaf_mem_kind_t kind, struct stepaf_gpu *gpu, size_t bytes,
                                    struct stepaf_device_mem *mem_p)
{
    stepaf_status_t status;
    void *base;

    if (kind == STEPAF_MEM_HOST)
        return host_alloc(bytes, mem_p);
    if (!gpu || kind != gpu->ops.mem_kind)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                                "unknown kind of memory %d", (int)kind);
    status = stepaf_gpu_alloc(gpu, bytes, &base);
    if (!status)
        *mem_p = (struct stepaf_device_mem){base, bytes, -1, kind, gpu};
    return status;
}

void stepaf_device_free(struct stepaf_device_mem *mem)
{
    if (mem->gpu)
        stepaf_gpu_free(mem->gpu, mem->base);
    else
        host_free(mem);
}

/* Open what another process names, for reading and writing. -1 with errno: ENOTBLK stands for what
 * is no file. To open a terminal or a device does more than that: it is looked at first. */
static int open_regular(const char *path)
{
    char again[64];
    struct stat facts;
    int place = stepaf_fd_open(path, O_PATH), file = -1, why;

    if (place < 0)
        return -1;
    if (fstat(place, &facts) == 0 && S_ISREG(facts.st_mode)) {
        snprintf(again, sizeof(again), "/proc/thread-self/fd/%d", place);
        file = stepaf_fd_open(again, O_RDWR | O_NONBLOCK | O_NOCTTY);
        why = errno;
    } else {
        why = ENOTBLK;
    }
    close(place);
    errno = why;
    return file;
}

void *stepaf_device_map_peer(pid_t pid, int fd, size_t bytes, char *reason)
{
    char path[64];
    struct stat facts;
    void *map;
    int seals;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
    int own = open_regular(path);
    if (own < 0) {
        snprintf(reason, STEPAF_REASON_MAX, "%s: %s", path,
                 errno == ENOTBLK ? "not a file of shared memory" : stepaf_why(errno));
        return NULL;
    }
    /* A file that could shrink would kill this process at the next write. */
    seals = fcntl(own, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(own, &facts) ||
        (uint64_t)facts.st_size < bytes) {
        snprintf(reason, STEPAF_REASON_MAX, "%s is not the sealed file that was announced", path);
        close(own);
        return NULL;
    }
    map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    if (map == MAP_FAILED) {
        snprintf(reason, STEPAF_REASON_MAX, "mmap of %zu bytes: %s", bytes, strerror(errno));
        map = NULL;
    }
    close(own);
    return map;
}

stepaf_status_t stepaf_device_check_host(const void *base, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)base % page, step;
    uint8_t *first = (uint8_t *)base - before;
    unsigned char resident[LOOK_PAGES]; /* nobody wants to know */

    for (size_t at = 0; at < before + bytes; at += step) {
        size_t left = before + bytes - at;
        step = left < LOOK_PAGES * page ? left : LOOK_PAGES * page;
        if (mincore(first + at, step, resident) && errno == ENOMEM)
            return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                                    "a page is not mapped, at byte %zu or later",
                                    at < before ? 0 : at - before);
    }
    return STEPAF_OK;
}
