/* SPDX-License-Identifier: Apache-2.0 */
#include "ucx_gpu.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANGES = 16, PAGE = 4096 };

static struct range {
    uint8_t *base, *view;
    size_t bytes;
} ranges[RANGES];

struct ucx_gpu ucx_gpu;

static struct range make_range(size_t bytes)
{
    int fd = memfd_create("ucx_gpu", MFD_CLOEXEC);
    struct range range = {.bytes = (bytes + PAGE - 1) / PAGE * PAGE};

    side_must(fd >= 0 && !ftruncate(fd, (off_t)range.bytes), "GPU memory");
    range.base = mmap(NULL, range.bytes, PROT_NONE, MAP_SHARED, fd, 0);
    range.view = mmap(NULL, range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    side_must(range.base != MAP_FAILED && range.view != MAP_FAILED, "GPU memory");
    (void)close(fd);
    return range;
}

struct stepaf_mem *ucx_gpu_memory(struct side *side, struct stepaf_gpu *gpu, size_t bytes)
{
    struct stepaf_mem *mem = side_memory(side, 1, false);
    unsigned at = 0;

    while (at < RANGES && ranges[at].base)
        at++;
    side_must(at < RANGES, "ranges of GPU memory");
    ranges[at] = make_range(bytes);
    free(mem->base);
    *mem = (struct stepaf_mem){.id = mem->id,
                               .base = ranges[at].base,
                               .bytes = bytes,
                               .kind = STEPAF_MEM_CUDA,
                               .fd = -1,
                               .gpu = gpu};
    return mem;
}

void ucx_gpu_end(void)
{
    for (unsigned i = 0; i < RANGES; i++) {
        if (!ranges[i].base)
            continue;
        (void)munmap(ranges[i].base, ranges[i].bytes);
        (void)munmap(ranges[i].view, ranges[i].bytes);
        ranges[i].base = NULL;
    }
}

static const struct range *find_range(const void *at)
{
    for (unsigned i = 0; i < RANGES; i++)
        if (ranges[i].base && (const uint8_t *)at >= ranges[i].base &&
            (const uint8_t *)at < ranges[i].base + ranges[i].bytes)
            return &ranges[i];
    return NULL;
}

uint8_t *ucx_gpu_view(const void *at)
{
    const struct range *range = find_range(at);

    return range ? range->view + ((const uint8_t *)at - range->base) : (uint8_t *)(uintptr_t)at;
}

bool ucx_gpu_owns(const void *at)
{
    return find_range(at) != NULL;
}

void ucx_gpu_called(void)
{
    ucx_gpu.n_outside += ucx_gpu.is_inside && !ucx_gpu.is_inside();
}

ucs_status_t ucx_gpu_map(const ucp_mem_map_params_t *params)
{
    if (!(params->field_mask & UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE))
        return UCS_OK;
    side_must(params->memory_type == UCS_MEMORY_TYPE_CUDA && ucx_gpu.has_cuda, "a memory type");
    ucx_gpu_called();
    if (ucx_gpu.refuse != UCS_OK)
        return ucx_gpu.refuse;
    ucx_gpu.base = params->address;
    ucx_gpu.bytes = params->length;
    return UCS_OK;
}

bool ucx_gpu_is_meant(const void *at, const ucp_request_param_t *param, bool *good_p)
{
    const uint32_t needed = UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    bool is_there = ucx_gpu_owns(at);
    bool is_said =
        (param->op_attr_mask & needed) == needed && param->memory_type == UCS_MEMORY_TYPE_CUDA;

    if (is_there)
        ucx_gpu_called();
    *good_p = is_there == is_said && (is_said || !(param->op_attr_mask & needed));
    return is_there;
}
