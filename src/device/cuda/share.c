/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory of several processes: exported and imported through IPC handles. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "device/cuda/driver.h"

/* A peer's allocation mapped in this process. */
struct mapping {
    struct stepaf_list node;
    uint8_t handle[STEPAF_GPU_IPC];
    CUdeviceptr base;
    size_t bytes;
    unsigned uses;
    bool opened; /* opened by its handle; otherwise it is this process's own */
};

_Static_assert(sizeof(CUipcMemHandle) == STEPAF_GPU_IPC, "plain bytes");

/* A random number that stands for this process, since process ids repeat from container to
 * container. CUDA does not open a handle in the process that made it, so importers must recognize
 * their own memory. */
static uint64_t this_process;

static void draw_process(void)
{
    if (getrandom(&this_process, sizeof(this_process), 0) != sizeof(this_process))
        this_process = 0; /* no process has this number */
}

static uint64_t process_number(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, draw_process);
    return this_process;
}

stepaf_status_t stepaf_cuda_export(struct stepaf_gpu *self, const void *ptr,
                                   struct stepaf_gpu_export *export_p)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    CUdeviceptr at = (CUdeviceptr)ptr, base = 0;
    struct stepaf_cuda_scope scope;
    CUipcMemHandle handle;
    size_t bytes = 0;
    stepaf_status_t status = stepaf_cuda_enter_setup(gpu, &scope);

    if (status)
        return status;
    CUresult result = cuda->mem_range(&base, &bytes, at);
    if (!result)
        result = cuda->ipc_get(&handle, base);
    stepaf_cuda_leave(gpu, &scope);
    if (result)
        return stepaf_cuda_check(cuda, result, "memory at %p of GPU %d cannot be shared", ptr,
                                 gpu->base.facts.ordinal);
    export_p->offset = at - base;
    export_p->bytes = bytes - (at - base);
    export_p->process = process_number();
    export_p->address = at;
    memcpy(export_p->handle, &handle, sizeof(export_p->handle));
    return STEPAF_OK;
}

/* Map memory of this process, perhaps of another of its GPUs. */
static stepaf_status_t map_own(struct stepaf_cuda_gpu *gpu,
                               const struct stepaf_gpu_export *exported, struct mapping *mapping)
{
    const void *ptr = (const void *)(uintptr_t)exported->address; /* NOLINT */
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    struct stepaf_gpu_place place = {0};
    CUcontext other = NULL;
    CUresult result;

    stepaf_cuda_classify(ptr, &place);
    if (!place.is_device || !place.base)
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_NONE,
                                "a peer in this process shares memory that does not exist");
    mapping->base = (CUdeviceptr)place.base;
    mapping->bytes = place.bytes;
    if (place.ordinal == gpu->base.facts.ordinal)
        return STEPAF_OK;
    result = cuda->primary_retain(&other, place.ordinal);
    if (!result) {
        result = cuda->ctx_enable_peer(other, 0);
        (void)cuda->primary_release(place.ordinal);
    }
    if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        result = CUDA_SUCCESS;
    return stepaf_cuda_check(cuda, result, "GPU %d cannot reach GPU %d", gpu->base.facts.ordinal,
                             place.ordinal);
}

static stepaf_status_t map_foreign(struct stepaf_cuda_gpu *gpu,
                                   const struct stepaf_gpu_export *exported,
                                   struct mapping *mapping)
{
    const struct stepaf_cuda_driver *cuda = gpu->cuda;
    CUipcMemHandle handle;
    CUdeviceptr base = 0;
    size_t bytes = 0;

    memcpy(&handle, exported->handle, sizeof(handle));
    CUresult result = cuda->ipc_open(&mapping->base, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result)
        return stepaf_cuda_check(cuda, result, "GPU %d cannot map the memory of a peer",
                                 gpu->base.facts.ordinal);
    mapping->opened = true;
    result = cuda->mem_range(&base, &bytes, mapping->base);
    mapping->bytes = bytes - (mapping->base - base);
    return stepaf_cuda_check(cuda, result, "cannot query the size of a peer's memory");
}

static void unmap(struct stepaf_cuda_gpu *gpu, struct mapping *mapping)
{
    struct stepaf_cuda_scope scope;

    stepaf_list_remove(&mapping->node);
    if (mapping->opened && !stepaf_cuda_enter_setup(gpu, &scope)) {
        if (stepaf_cuda_check(gpu->cuda, gpu->cuda->ipc_close(mapping->base),
                              "unmapping a peer's memory"))
            stepaf_log_debug("%s", stepaf_last_error()->text);
        stepaf_cuda_leave(gpu, &scope);
    }
    free(mapping);
}

/* Find the mapping of an allocation, or map it now, with no uses yet. */
static stepaf_status_t map_allocation(struct stepaf_cuda_gpu *gpu,
                                      const struct stepaf_gpu_export *exported,
                                      struct mapping **mapping_p)
{
    struct stepaf_cuda_scope scope;
    struct mapping *mapping;
    stepaf_status_t status;

    for (struct stepaf_list *node = gpu->mappings.next; node != &gpu->mappings; node = node->next) {
        mapping = stepaf_container_of(node, struct mapping, node);
        if (memcmp(mapping->handle, exported->handle, sizeof(mapping->handle)) == 0) {
            *mapping_p = mapping;
            return STEPAF_OK;
        }
    }
    mapping = calloc(1, sizeof(*mapping));
    if (!mapping)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    memcpy(mapping->handle, exported->handle, sizeof(mapping->handle));
    stepaf_list_append(&gpu->mappings, &mapping->node);
    status = stepaf_cuda_enter_setup(gpu, &scope);
    if (!status) {
        status = process_number() && exported->process == process_number()
                     ? map_own(gpu, exported, mapping)
                     : map_foreign(gpu, exported, mapping);
        stepaf_cuda_leave(gpu, &scope);
    }
    if (status)
        unmap(gpu, mapping);
    else
        *mapping_p = mapping;
    return status;
}

stepaf_status_t stepaf_cuda_import(struct stepaf_gpu *self,
                                   const struct stepaf_gpu_export *exported, void **ptr_p)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    struct mapping *mapping = NULL;
    stepaf_status_t status = map_allocation(gpu, exported, &mapping);

    if (status)
        return status;
    if (exported->offset >= mapping->bytes || exported->bytes > mapping->bytes - exported->offset) {
        if (!mapping->uses)
            unmap(gpu, mapping);
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_NONE,
                                "a peer shares memory beyond the end of an allocation");
    }
    mapping->uses++;
    *ptr_p = (void *)(uintptr_t)(mapping->base + exported->offset);
    return STEPAF_OK;
}

void stepaf_cuda_unimport(struct stepaf_gpu *self, void *ptr)
{
    struct stepaf_cuda_gpu *gpu = stepaf_cuda_gpu(self);
    CUdeviceptr at = (CUdeviceptr)ptr;

    for (struct stepaf_list *node = gpu->mappings.next; node != &gpu->mappings; node = node->next) {
        struct mapping *mapping = stepaf_container_of(node, struct mapping, node);
        if (at < mapping->base || at - mapping->base >= mapping->bytes)
            continue;
        if (!--mapping->uses)
            unmap(gpu, mapping);
        return;
    }
}

void stepaf_cuda_unmap_all(struct stepaf_cuda_gpu *gpu)
{
    while (!stepaf_list_empty(&gpu->mappings))
        unmap(gpu, stepaf_container_of(gpu->mappings.next, struct mapping, node));
}
