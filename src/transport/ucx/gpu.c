/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory that UCX registers by its memory type, and moves itself. Other GPU memory goes through
 * bounce buffers.
 *
 * Where NICs can read and write the GPU's memory, UCX uses them. Elsewhere UCX copies with CUDA calls,
 * in the thread that polls, on streams of its own that wait for no other stream. Bounce buffers make
 * the same copies, and nothing waits for them. So such a UCX is used only with
 * STEPAF_UCX_GPU=direct. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "device/gpu.h"
#include "settings/settings.h"
#include "transport/ucx/ucx.h"

/* The memory types of UCX, by the names of devices. */
static const struct {
    const char *device;
    ucs_memory_type_t type;
} memory_types[] = {{"cuda", UCS_MEMORY_TYPE_CUDA}};

enum { MAJOR = 1, DMABUF_MINOR = 15, ENTERS_MINOR = 19 };

static const char *const peer_modules[] = {"/sys/module/nvidia_peermem/version",
                                           "/sys/kernel/mm/memory_peers/nv_mem/version",
                                           "/sys/kernel/mm/memory_peers/nv_mem_nc/version"};

/* Return why no GPU memory at all may be registered; "": it may be. */
static const char *why_never_gpu(struct stepaf_ucx *ucx)
{
    int setting = ucx->shared.base.up->env->ucx_gpu;
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

    if (setting == STEPAF_ENV_UCX_GPU_staged)
        return "STEPAF_UCX_GPU=staged";
    if (ucx->calls->context_query(ucx->context, &attr) != UCS_OK ||
        !(attr.memory_types & 1u << UCS_MEMORY_TYPE_CUDA))
        return "this UCX is built without CUDA, or UCX_TLS excludes CUDA";
    ucx->gpu.has_rdma = stepaf_ucx_has_rdma(ucx);
    if (setting == STEPAF_ENV_UCX_GPU_auto && !ucx->gpu.has_rdma)
        return "UCX has no RDMA device here: UCX would copy with CUDA calls "
               "(STEPAF_UCX_GPU=direct)";
    return "";
}

void stepaf_ucx_open_gpu(struct stepaf_ucx *ucx)
{
    unsigned major = 0, minor = 0, release = 0;

    ucx->calls->get_version(&major, &minor, &release);
    /* From 1.15 on, UCX can register dma-bufs with NICs; from 1.19 on, it enters the context of the
     * memory. */
    ucx->gpu.takes_dmabuf = UCP_VERSION(major, minor) >= UCP_VERSION(MAJOR, DMABUF_MINOR);
    ucx->gpu.needs_context = UCP_VERSION(major, minor) < UCP_VERSION(MAJOR, ENTERS_MINOR);
    ucx->gpu.never = why_never_gpu(ucx);
}

/* Return whether NICs can reach the GPU's memory, by the same tests as UCX. */
static bool cards_reach(const struct stepaf_ucx *ucx, const struct stepaf_gpu_rdma *rdma)
{
    if (ucx->gpu.takes_dmabuf && !rdma->no_dmabuf[0])
        return true;
    for (size_t i = 0; i < sizeof(peer_modules) / sizeof(*peer_modules) && !rdma->no_peermem[0];
         i++)
        if (!access(peer_modules[i], F_OK))
            return true;
    return false;
}

/* Return why this memory may not be registered; "": it may be. */
static const char *why_not_this_gpu(const struct stepaf_ucx *ucx, const struct stepaf_mem *mem)
{
    const struct stepaf_gpu_rdma *rdma = stepaf_gpu_rdma(mem->gpu);

    if (ucx->gpu.never[0])
        return ucx->gpu.never;
    if (rdma->two_ways)
        return "the GPU has two paths to its memory, and nothing here flushes them";
    if (rdma->no_flush[0])
        return rdma->no_flush;
    if (ucx->shared.base.up->env->ucx_gpu == STEPAF_ENV_UCX_GPU_auto && !cards_reach(ucx, rdma))
        return "no NIC of UCX reaches GPU memory (STEPAF_UCX_GPU=direct)";
    return "";
}

struct mapping {
    struct stepaf_ucx *ucx;
    ucp_mem_map_params_t params;
    ucp_mem_h memh;
    ucs_status_t status;
};

static void map_it(void *arg)
{
    struct mapping *job = arg;

    job->status = job->ucx->calls->mem_map(job->ucx->context, &job->params, &job->memh);
}

/* UCX queries the GPU's driver about the memory, which requires the GPU's context. */
static bool map_inside(struct stepaf_ucx *ucx, struct mapping *job, struct stepaf_gpu *gpu)
{
    if (stepaf_gpu_inside(gpu, map_it, job)) {
        snprintf(ucx->gpu.why, sizeof(ucx->gpu.why), "%.180s", stepaf_last_error()->text);
        return false;
    }
    if (job->status != UCS_OK)
        snprintf(ucx->gpu.why, sizeof(ucx->gpu.why), "cannot register GPU memory: %.100s",
                 ucx->calls->status_string(job->status));
    return job->status == UCS_OK;
}

bool stepaf_ucx_map_gpu(struct stepaf_ucx *ucx, const struct stepaf_mem *mem,
                        struct stepaf_ucx_registration *registration)
{
    struct mapping job = {.ucx = ucx,
                          .params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                   UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                   UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                     .address = mem->base,
                                     .length = mem->bytes}};
    const char *why = why_not_this_gpu(ucx, mem);

    snprintf(ucx->gpu.why, sizeof(ucx->gpu.why), "%s", why);
    for (size_t i = 0; i < sizeof(memory_types) / sizeof(*memory_types) && !why[0]; i++) {
        if (strcmp(mem->gpu->ops.name, memory_types[i].device) != 0)
            continue;
        job.params.memory_type = memory_types[i].type;
        bool is_mapped = map_inside(ucx, &job, mem->gpu);
        if (is_mapped)
            *registration = (struct stepaf_ucx_registration){
                .memh = job.memh, .gpu = mem->gpu, .type = memory_types[i].type};
        return is_mapped;
    }
    if (!why[0])
        snprintf(ucx->gpu.why, sizeof(ucx->gpu.why), "UCX has no memory type for %.40s",
                 mem->gpu->ops.name);
    return false;
}

static void unmap_it(void *arg)
{
    struct mapping *job = arg;

    (void)job->ucx->calls->mem_unmap(job->ucx->context, job->memh);
}

void stepaf_ucx_unmap_gpu(struct stepaf_ucx *ucx, struct stepaf_gpu *gpu, ucp_mem_h memh)
{
    struct mapping job = {.ucx = ucx, .memh = memh};

    if (stepaf_gpu_inside(gpu, unmap_it, &job))
        unmap_it(&job); /* the GPU's context is gone, but UCX must still forget the memory */
}

stepaf_status_t stepaf_ucx_note_gpu(struct stepaf_ucx *ucx, const struct stepaf_mem *mem,
                                    bool is_taken)
{
    ucx->gpu.way = is_taken ? STEPAF_UCX_GPU_DIRECT : STEPAF_UCX_GPU_STAGED;
    if (is_taken) {
        if (!ucx->gpu.device && ucx->gpu.needs_context)
            ucx->gpu.n_inside = ucx->gpu.n_always = 1;
        ucx->gpu.device = mem->gpu;
        for (uint32_t p = 0; p < ucx->shared.n_peers; p++)
            ucx->links[p].has_gpu = true;
        if (stepaf_gpu_sync_memops(mem->gpu, mem->base))
            stepaf_log_info("ucx: %s", stepaf_last_error()->text); /* of memory mapped in pieces */
        return STEPAF_OK;
    }
    if (ucx->shared.base.up->env->ucx_gpu == STEPAF_ENV_UCX_GPU_direct)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT,
                                "STEPAF_UCX_GPU=direct: %s: %.160s", ucx->version, ucx->gpu.why);
    stepaf_log_info("ucx: GPU memory goes through bounce buffers: %s", ucx->gpu.why);
    return STEPAF_OK;
}

void stepaf_ucx_describe_gpu(const struct stepaf_transport *transport, char *text)
{
    const struct stepaf_ucx *ucx = (const struct stepaf_ucx *)transport;

    text[0] = '\0';
    if (ucx->gpu.way == STEPAF_UCX_GPU_STAGED)
        snprintf(text, STEPAF_REASON_MAX, "staged: %s: %.150s", ucx->version, ucx->gpu.why);
    else if (ucx->gpu.way == STEPAF_UCX_GPU_DIRECT)
        snprintf(text, STEPAF_REASON_MAX, "UCX memory type %s%s", ucx->gpu.device->ops.name,
                 ucx->gpu.has_rdma ? "" : " (STEPAF_UCX_GPU=direct: UCX copies with CUDA calls)");
}
