/* SPDX-License-Identifier: Apache-2.0 */
/* The made-up driver's memory: pieces of this process's. */
#include <stdlib.h>
#include <string.h>

#include "cuda_fake.h"

enum { ALIGNMENT = 512 };

struct cuda_piece *cuda_fake_piece(size_t bytes, int device, bool shareable)
{
    size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

    for (int i = 0; i < CUDA_FAKE_PIECES; i++) {
        struct cuda_piece *piece = &cuda_fake.pieces[i];
        if (piece->base)
            continue;
        *piece = (struct cuda_piece){
            aligned_alloc(ALIGNMENT, whole), bytes, device, shareable, false, false, false};
        return piece->base ? piece : NULL;
    }
    return NULL;
}

struct cuda_piece *cuda_fake_split(struct cuda_piece *piece, size_t bytes)
{
    struct cuda_piece *second = piece;

    while (second->base)
        second = second == &cuda_fake.pieces[CUDA_FAKE_PIECES - 1] ? cuda_fake.pieces : second + 1;
    *second = *piece;
    second->base += bytes;
    second->bytes -= bytes;
    second->op_peer = true;
    piece->bytes = bytes;
    return second;
}

int cuda_fake_count(void)
{
    int n = 0;

    for (int i = 0; i < CUDA_FAKE_PIECES; i++)
        n += cuda_fake.pieces[i].base != NULL;
    return n;
}

static struct cuda_piece *find(CUdeviceptr at)
{
    for (int i = 0; i < CUDA_FAKE_PIECES; i++) {
        struct cuda_piece *piece = &cuda_fake.pieces[i];
        if (piece->base && at >= (CUdeviceptr)piece->base &&
            at - (CUdeviceptr)piece->base < piece->bytes)
            return piece;
    }
    return NULL;
}

static CUresult drop(CUdeviceptr at)
{
    struct cuda_piece *piece = find(at);

    if (!piece)
        return CUDA_ERROR_INVALID_VALUE;
    if (!piece->op_peer)
        free(piece->base);
    piece->base = NULL;
    return CUDA_SUCCESS;
}

static CUresult fake_pointer_attributes(unsigned n, CUpointer_attribute *names, void **values,
                                        CUdeviceptr at)
{
    const struct cuda_piece *piece = find(at);

    for (unsigned i = 0; i < n && piece; i++) {
        CUdeviceptr base = (CUdeviceptr)piece->base;
        CUmemorytype type = CU_MEMORYTYPE_DEVICE;
        int mapped = 1, managed = piece->managed, shareable = piece->shareable;
        switch ((int)names[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            memcpy(values[i], &type, sizeof(type));
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            memcpy(values[i], &piece->device, sizeof(piece->device));
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            memcpy(values[i], &managed, sizeof(managed));
            break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            memcpy(values[i], &shareable, sizeof(shareable));
            break;
        case CU_POINTER_ATTRIBUTE_MAPPED:
            memcpy(values[i], &mapped, sizeof(mapped));
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            memcpy(values[i], &base, sizeof(base));
            break;
        default:
            memcpy(values[i], &piece->bytes, sizeof(piece->bytes));
        }
    }
    return CUDA_SUCCESS;
}

static CUresult fake_mem_alloc(CUdeviceptr *at_p, size_t bytes)
{
    CUresult result = cuda_fake_step();
    const struct cuda_piece *piece = result ? NULL : cuda_fake_piece(bytes, 0, true);

    if (!piece)
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    memset(piece->base, 0xa5, bytes);
    *at_p = (CUdeviceptr)piece->base;
    return CUDA_SUCCESS;
}

static CUresult fake_mem_range(CUdeviceptr *base_p, size_t *bytes_p, CUdeviceptr at)
{
    const struct cuda_piece *piece = find(at);

    if (!piece)
        return CUDA_ERROR_NOT_FOUND;
    *base_p = (CUdeviceptr)piece->base;
    *bytes_p = piece->bytes;
    return cuda_fake_step();
}

static CUresult fake_host_alloc(void **ptr_p, size_t bytes, unsigned flags)
{
    CUresult result =
        flags & CU_MEMHOSTALLOC_DEVICEMAP ? cuda_fake_step() : CUDA_ERROR_INVALID_VALUE;

    if (result)
        return result;
    *ptr_p = malloc(bytes);
    cuda_fake.n_held++;
    return *ptr_p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_host_free(void *ptr)
{
    free(ptr);
    return cuda_fake_take();
}

static CUresult fake_host_register(void *ptr, size_t bytes, unsigned flags)
{
    CUresult result = ptr && bytes && (flags & CU_MEMHOSTREGISTER_DEVICEMAP)
                          ? cuda_fake_step()
                          : CUDA_ERROR_INVALID_VALUE;

    cuda_fake.n_held += !result;
    return result;
}

static CUresult fake_host_unregister(void *ptr)
{
    (void)ptr;
    return cuda_fake_take();
}

static CUresult fake_host_pointer(CUdeviceptr *at_p, void *ptr, unsigned flags)
{
    (void)flags;
    *at_p = (CUdeviceptr)ptr;
    return cuda_fake_step();
}

static CUresult fake_set_async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream)
{
    CUresult result =
        stream ? cuda_fake_step() : CUDA_ERROR_INVALID_VALUE; /* never the legacy stream */

    if (!result)
        memset((void *)at, value, bytes); /* NOLINT(performance-no-int-to-ptr) */
    return result;
}

/* Whether a range ends in the piece that it begins in, if it begins in one. */
static bool is_whole(CUdeviceptr at, size_t bytes)
{
    const struct cuda_piece *piece = find(at);

    return !piece || bytes <= piece->bytes - (at - (CUdeviceptr)piece->base);
}

static CUresult fake_copy_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    CUresult result = stream ? cuda_fake_step() : CUDA_ERROR_INVALID_VALUE;

    __atomic_add_fetch(&cuda_fake.n_copies, 1, __ATOMIC_RELAXED);
    if (!is_whole(dst, bytes) || !is_whole(src, bytes))
        result = CUDA_ERROR_INVALID_VALUE; /* no copy takes more than one allocation */
    if (!result)
        memcpy((void *)dst, (const void *)src, bytes); /* NOLINT(performance-no-int-to-ptr) */
    return result;
}

/* A handle is the address; opened, it shows the same bytes at another place. */
static CUresult fake_ipc_get(CUipcMemHandle *handle_p, CUdeviceptr at)
{
    int n = __atomic_add_fetch(&cuda_fake.n_ipc, 1, __ATOMIC_RELAXED);

    memset(handle_p, 0, sizeof(*handle_p));
    memcpy(handle_p, &at, sizeof(at));
    return n == cuda_fake.fail_ipc_at ? cuda_fake.error : cuda_fake_step();
}

static CUresult fake_ipc_open(CUdeviceptr *at_p, CUipcMemHandle handle, unsigned flags)
{
    CUresult result =
        flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ? cuda_fake_step() : CUDA_ERROR_INVALID_VALUE;
    const struct cuda_piece *piece;
    CUdeviceptr at;

    memcpy(&at, &handle, sizeof(at));
    piece = find(at);
    if (result || !piece)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    struct cuda_piece *opened = cuda_fake_piece(piece->bytes, 0, false);
    if (!opened)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(opened->base, piece->base, piece->bytes);
    opened->opened = true;
    *at_p = (CUdeviceptr)opened->base;
    return CUDA_SUCCESS;
}

void cuda_fake_memory_end(void)
{
    for (int i = 0; i < CUDA_FAKE_PIECES; i++)
        if (!cuda_fake.pieces[i].op_peer)
            free(cuda_fake.pieces[i].base);
}

void cuda_fake_memory_fill(struct stepaf_cuda_driver *driver)
{
    driver->pointer_attributes = fake_pointer_attributes;
    driver->mem_alloc = fake_mem_alloc;
    driver->mem_free = drop;
    driver->mem_range = fake_mem_range;
    driver->host_alloc = fake_host_alloc;
    driver->host_free = fake_host_free;
    driver->host_register = fake_host_register;
    driver->host_unregister = fake_host_unregister;
    driver->host_pointer = fake_host_pointer;
    driver->set_async = fake_set_async;
    driver->copy_async = fake_copy_async;
    driver->ipc_get = fake_ipc_get;
    driver->ipc_open = fake_ipc_open;
    driver->ipc_close = drop;
}
