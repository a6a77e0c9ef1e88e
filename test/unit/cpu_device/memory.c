/* SPDX-License-Identifier: Apache-2.0 */
/* The device's memory: pieces, of a file each. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu_device.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct cpu_piece *free_piece(void)
{
    for (int i = 0; i < CPU_PIECES; i++)
        if (!cpu_device.pieces[i].base)
            return &cpu_device.pieces[i];
    return NULL;
}

static uint8_t *map_new(size_t bytes, int *fd_p)
{
    void *base = MAP_FAILED;
    int fd = memfd_create("cpu_device", MFD_CLOEXEC);

    if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED && fd >= 0)
        close(fd);
    *fd_p = fd;
    return base == MAP_FAILED ? NULL : base;
}

struct cpu_piece *cpu_device_piece(size_t bytes, int ordinal, bool shareable)
{
    struct cpu_piece *piece;

    pthread_mutex_lock(&lock);
    piece = free_piece();
    if (piece) {
        *piece = (struct cpu_piece){
            .bytes = bytes, .mapped = bytes, .ordinal = ordinal, .shareable = shareable};
        piece->base = map_new(bytes, &piece->fd);
    }
    pthread_mutex_unlock(&lock);
    return piece && piece->base ? piece : NULL;
}

struct cpu_piece *cpu_device_split(struct cpu_piece *piece, size_t bytes)
{
    struct cpu_piece *second = free_piece();

    *second = *piece;
    second->base += bytes;
    second->bytes -= bytes;
    second->mapped = 0;
    second->fd = -1;
    piece->bytes = bytes;
    return second;
}

int cpu_device_count(void)
{
    int n = 0;

    for (int i = 0; i < CPU_PIECES; i++)
        n += cpu_device.pieces[i].base != NULL;
    return n;
}

struct cpu_piece *cpu_device_find(const void *ptr)
{
    struct cpu_piece *found = NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < CPU_PIECES && !found; i++) {
        struct cpu_piece *piece = &cpu_device.pieces[i];
        if (piece->base && (const uint8_t *)ptr >= piece->base &&
            (size_t)((const uint8_t *)ptr - piece->base) < piece->bytes)
            found = piece;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void cpu_device_drop(void *ptr)
{
    struct cpu_piece *piece = cpu_device_find(ptr);

    if (!piece)
        return;
    pthread_mutex_lock(&lock);
    if (piece->mapped)
        munmap(piece->base, piece->mapped);
    if (piece->fd >= 0)
        close(piece->fd);
    piece->base = NULL;
    pthread_mutex_unlock(&lock);
}

stepaf_status_t cpu_alloc(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p)
{
    stepaf_status_t status = cpu_device_step("cannot allocate the device's memory");
    const struct cpu_piece *piece = status ? NULL : cpu_device_piece(bytes, 0, true);

    (void)gpu;
    if (piece)
        *ptr_p = piece->base;
    else if (!status)
        status = stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE, "out of memory");
    return status;
}

void cpu_free(struct stepaf_gpu *gpu, void *ptr)
{
    (void)gpu;
    if (ptr)
        cpu_device_drop(ptr);
}

stepaf_status_t cpu_alloc_host(struct stepaf_gpu *gpu, size_t bytes, void **ptr_p)
{
    void *ptr = calloc(1, bytes);
    stepaf_status_t status;

    (void)gpu;
    if (!ptr)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_NONE, "out of memory");
    status = cpu_device_hold("cannot allocate pinned memory");
    if (status)
        free(ptr);
    else
        *ptr_p = ptr;
    return status;
}

void cpu_free_host(struct stepaf_gpu *gpu, void *ptr)
{
    (void)gpu;
    if (!ptr)
        return;
    free(ptr);
    cpu_device_let_go();
}

stepaf_status_t cpu_pin(struct stepaf_gpu *gpu, void *ptr, size_t bytes, bool *own_p)
{
    (void)gpu, (void)ptr, (void)bytes;
    if (cpu_device.pinned_already) {
        *own_p = false;
        return STEPAF_OK;
    }
    stepaf_status_t status = cpu_device_hold("cannot pin host memory");
    if (!status)
        *own_p = true;
    return status;
}

void cpu_unpin(struct stepaf_gpu *gpu, void *ptr)
{
    (void)gpu, (void)ptr;
    cpu_device_let_go();
}

stepaf_status_t cpu_write(struct stepaf_gpu *gpu, void *dst, const void *src, size_t bytes)
{
    stepaf_status_t status = cpu_device_step("cannot write the device's memory");

    (void)gpu;
    if (!status)
        memcpy(dst, src, bytes);
    return status;
}
