/* SPDX-License-Identifier: Apache-2.0 */
/* The device's memory in other processes: its file is opened by way of /proc. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu_device.h"

/* What a handle says. */
struct handle {
    pid_t process;
    int fd;
    uint64_t file; /* its number, since descriptors are used again */
};

static uint64_t number_of(int fd)
{
    struct stat facts;

    return fd >= 0 && !fstat(fd, &facts) ? (uint64_t)facts.st_ino : 0;
}

stepaf_status_t cpu_export(struct stepaf_gpu *gpu, const void *ptr,
                           struct stepaf_gpu_export *export_p)
{
    int n = __atomic_add_fetch(&cpu_device.n_exports, 1, __ATOMIC_RELAXED);
    const struct cpu_piece *piece = cpu_device_find(ptr);
    stepaf_status_t status = cpu_device_step("the device's memory cannot be shared");

    (void)gpu;
    if (!status && n == cpu_device.fail_export_at)
        status = stepaf_error_set(cpu_device.error, STEPAF_PHASE_NONE,
                                  "the device's memory cannot be shared: told to fail");
    if (!status && (!piece || piece->fd < 0))
        status = stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                                  "this memory cannot be shared");
    if (status)
        return status;
    struct handle handle = {.process = getpid(), .fd = piece->fd, .file = number_of(piece->fd)};
    *export_p = (struct stepaf_gpu_export){
        .offset = (uint64_t)((const uint8_t *)ptr - piece->base),
        .bytes = piece->bytes - (size_t)((const uint8_t *)ptr - piece->base),
        .process = (uint64_t)handle.process,
        .address = (uintptr_t)ptr,
    };
    memcpy(export_p->handle, &handle, sizeof(handle));
    return STEPAF_OK;
}

static bool ends_in(const struct cpu_piece *piece, const struct stepaf_gpu_export *exported)
{
    return exported->offset < piece->bytes && exported->bytes <= piece->bytes - exported->offset;
}

/* Memory of this process needs no mapping. */
static struct cpu_piece *find_own(const struct stepaf_gpu_export *exported)
{
    /* NOLINTNEXTLINE(performance-no-int-to-ptr) */
    return cpu_device_find((const void *)(uintptr_t)exported->address);
}

static struct cpu_piece *find_mapped(struct stepaf_gpu *gpu,
                                     const struct stepaf_gpu_export *exported)
{
    for (int i = 0; i < CPU_PIECES; i++) {
        struct cpu_piece *piece = &cpu_device.pieces[i];
        if (piece->base && piece->by == gpu &&
            memcmp(piece->handle, exported->handle, sizeof(piece->handle)) == 0)
            return piece;
    }
    return NULL;
}

static struct cpu_piece *map(struct stepaf_gpu *gpu, const struct stepaf_gpu_export *exported)
{
    struct cpu_piece *piece = NULL;
    struct handle handle;
    struct stat facts;
    char path[64];

    memcpy(&handle, exported->handle, sizeof(handle));
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)handle.process, handle.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (!fstat(fd, &facts) && facts.st_ino == handle.file && facts.st_size > 0)
        piece = cpu_device_piece((size_t)facts.st_size, 0, false);
    /* In the place of the piece's own file. */
    if (piece && mmap(piece->base, piece->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      fd, 0) == MAP_FAILED) {
        cpu_device_drop(piece->base);
        piece = NULL;
    }
    close(fd);
    if (piece) {
        close(piece->fd);
        piece->fd = -1;
        piece->by = gpu;
        memcpy(piece->handle, exported->handle, sizeof(piece->handle));
    }
    return piece;
}

stepaf_status_t cpu_import(struct stepaf_gpu *gpu, const struct stepaf_gpu_export *exported,
                           void **ptr_p)
{
    stepaf_status_t status = cpu_device_step("cannot map the memory of a peer");
    bool own = exported->process == (uint64_t)getpid();
    struct cpu_piece *piece;

    if (status)
        return status;
    piece = own ? find_own(exported) : find_mapped(gpu, exported);
    if (!piece && !own && !cpu_device.cut)
        piece = map(gpu, exported);
    if (!piece || !ends_in(piece, exported)) {
        if (piece && !own && !piece->uses)
            cpu_device_drop(piece->base);
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_NONE,
                                "a peer shares memory that is not there");
    }
    piece->uses += !own;
    *ptr_p = piece->base + exported->offset;
    return STEPAF_OK;
}

void cpu_unimport(struct stepaf_gpu *gpu, void *ptr)
{
    struct cpu_piece *piece = cpu_device_find(ptr);

    if (piece && piece->by == gpu && !--piece->uses)
        cpu_device_drop(piece->base);
}

void cpu_device_unmap_all(struct stepaf_gpu *gpu)
{
    for (int i = 0; i < CPU_PIECES; i++)
        if (cpu_device.pieces[i].base && cpu_device.pieces[i].by == gpu)
            cpu_device_drop(cpu_device.pieces[i].base);
}
