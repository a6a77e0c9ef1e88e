/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of tensors: each region is registered once with every rail, so that a key covers exactly
 * the region. GPU memory is registered through dma-buf, else through a peer-memory module of the
 * GPU's driver, else not at all: then the core copies it through a bounce buffer, and this file
 * reports why.
 *
 * Relaxed ordering lets the device's writes overtake each other on their way to memory, but not the
 * completion that follows them (ibv_reg_mr(3), IBV_ACCESS_RELAXED_ORDERING; PCI Express Base
 * Specification, transaction ordering: a posted write without the attribute, such as the
 * completion's, passes no posted write). A completion announces every message here, so tensors may
 * use relaxed ordering. The control memory may not: its words are overwritten repeatedly, and read
 * without a completion. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/verbs/verbs.h"

/* Return what peers may do with the memory; a NIC that must flush what it has written reads some of
 * it as a peer. */
static int access_to(const struct stepaf_mem *mem)
{
    return mem->kind == STEPAF_MEM_CUDA && stepaf_gpu_rdma(mem->gpu)->two_ways
               ? STEPAF_VERBS_ACCESS | IBV_ACCESS_REMOTE_READ
               : STEPAF_VERBS_ACCESS;
}

/* Register with relaxed ordering if the setting asks for it and the device accepts it. */
static struct ibv_mr *register_range(const struct stepaf_verbs *verbs, struct ibv_pd *pd,
                                     const struct stepaf_mem *mem)
{
    const struct stepaf_verbs_provider *provider = verbs->provider;
    struct ibv_mr *mr = NULL;

    if (verbs->base.up->env->verbs_order == STEPAF_ENV_VERBS_ORDER_relaxed) {
        mr = provider->reg_mr(pd, mem->base, mem->bytes,
                              access_to(mem) | IBV_ACCESS_RELAXED_ORDERING);
        if (mr || (errno != EINVAL && errno != EOPNOTSUPP))
            return mr;
    }
    return provider->reg_mr(pd, mem->base, mem->bytes, access_to(mem));
}

static struct ibv_mr *register_file(const struct stepaf_verbs *verbs, struct ibv_pd *pd,
                                    const struct stepaf_mem *mem, int fd, uint64_t offset)
{
    const struct stepaf_verbs_provider *provider = verbs->provider;
    uintptr_t at = (uintptr_t)mem->base;
    struct ibv_mr *mr = NULL;

    if (verbs->base.up->env->verbs_order == STEPAF_ENV_VERBS_ORDER_relaxed) {
        mr = provider->reg_dmabuf_mr(pd, offset, mem->bytes, at, fd,
                                     access_to(mem) | IBV_ACCESS_RELAXED_ORDERING);
        if (mr || errno != EINVAL)
            return mr;
    }
    return provider->reg_dmabuf_mr(pd, offset, mem->bytes, at, fd, access_to(mem));
}

/* Return NULL on failure, with the reason in @a why. */
static struct ibv_mr *export_and_register(const struct stepaf_verbs *verbs, struct ibv_pd *pd,
                                          const struct stepaf_mem *mem, bool by_pcie,
                                          char why[STEPAF_REASON_MAX])
{
    uint64_t offset;
    int fd;

    if (stepaf_gpu_dmabuf(mem->gpu, mem->base, mem->bytes, by_pcie, &fd, &offset)) {
        snprintf(why, STEPAF_REASON_MAX, "no dma-buf: %.150s", stepaf_last_error()->text);
        return NULL;
    }
    struct ibv_mr *mr = register_file(verbs, pd, mem, fd, offset);
    int error = errno;
    (void)close(fd); /* the device has its own reference */
    if (!mr)
        snprintf(why, STEPAF_REASON_MAX, "no dma-buf: %s",
                 error == ENOSYS ? "libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34 has)"
                                 : strerror(error));
    return mr;
}

/* If there are two ways, try PCIe first, for NICs next to the GPU; the other way is for NICs next
 * to the CPU. */
static struct ibv_mr *register_dmabuf(const struct stepaf_verbs *verbs, struct ibv_pd *pd,
                                      const struct stepaf_mem *mem, char why[STEPAF_REASON_MAX])
{
    struct ibv_mr *mr = NULL;

    if (stepaf_gpu_rdma(mem->gpu)->two_ways)
        mr = export_and_register(verbs, pd, mem, true, why);
    if (!mr)
        mr = export_and_register(verbs, pd, mem, false, why);
    if (mr)
        why[0] = '\0';
    return mr;
}

static struct ibv_mr *register_peermem(const struct stepaf_verbs *verbs, struct ibv_pd *pd,
                                       const struct stepaf_mem *mem, char why[STEPAF_REASON_MAX])
{
    const struct stepaf_gpu_rdma *rdma = stepaf_gpu_rdma(mem->gpu);

    if (rdma->no_peermem[0]) {
        snprintf(why, STEPAF_REASON_MAX, "no peer memory: %s", rdma->no_peermem);
        return NULL;
    }
    struct ibv_mr *mr = register_range(verbs, pd, mem);
    if (!mr)
        snprintf(why, STEPAF_REASON_MAX, "no peer memory: %s%s", strerror(errno),
                 errno == EFAULT ? " (is nvidia_peermem loaded?)" : "");
    return mr;
}

/* Register GPU memory with one rail by the first way that works; record the way and the reasons in
 * the rail. Return NULL if the memory must go through a bounce buffer. */
static struct ibv_mr *register_gpu(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail,
                                   const struct stepaf_mem *mem)
{
    int setting = verbs->base.up->env->verbs_gpu;
    const struct stepaf_gpu_rdma *rdma = stepaf_gpu_rdma(mem->gpu);
    char no_dmabuf[STEPAF_REASON_MAX] = "", no_peermem[STEPAF_REASON_MAX] = "";
    struct ibv_mr *mr = NULL;

    rail->gpu = STEPAF_VERBS_GPU_STAGED;
    if (setting == STEPAF_ENV_VERBS_GPU_staged || rdma->no_flush[0]) {
        snprintf(rail->gpu_why, sizeof(rail->gpu_why), "%s",
                 setting == STEPAF_ENV_VERBS_GPU_staged ? "STEPAF_VERBS_GPU=staged"
                                                        : rdma->no_flush);
        return NULL;
    }
    if (setting == STEPAF_ENV_VERBS_GPU_auto || setting == STEPAF_ENV_VERBS_GPU_dmabuf) {
        mr = register_dmabuf(verbs, rail->pd, mem, no_dmabuf);
        rail->gpu = STEPAF_VERBS_GPU_DMABUF;
    }
    if (!mr && setting != STEPAF_ENV_VERBS_GPU_dmabuf) {
        mr = register_peermem(verbs, rail->pd, mem, no_peermem);
        rail->gpu = STEPAF_VERBS_GPU_PEERMEM;
    }
    int error = mr && rdma->two_ways ? stepaf_verbs_flush_make(verbs, rail) : 0;
    if (error) {
        verbs->provider->dereg_mr(mr);
        snprintf(no_peermem, sizeof(no_peermem), "no read to flush the writes: %s",
                 strerror(error));
        mr = NULL;
    }
    if (!mr)
        rail->gpu = STEPAF_VERBS_GPU_STAGED;
    snprintf(rail->gpu_why, sizeof(rail->gpu_why), "%.110s%s%.75s", no_dmabuf,
             no_dmabuf[0] && no_peermem[0] ? ", " : "", no_peermem);
    return mr;
}

static void deregister(struct stepaf_verbs *verbs, struct stepaf_mem *mem)
{
    struct stepaf_verbs_memory *memory = mem->registration[STEPAF_TRANSPORT_verbs];

    for (unsigned r = 0; r < verbs->n_rails; r++)
        if (memory->mr[r])
            verbs->provider->dereg_mr(memory->mr[r]);
    stepaf_list_remove(&memory->node);
    mem->registration[STEPAF_TRANSPORT_verbs] = NULL;
    free(memory);
}

/* Handle memory that a rail rejects. That is a failure for host memory, or if the setting names a
 * way. */
static stepaf_status_t refuse_memory(struct stepaf_verbs *verbs,
                                     const struct stepaf_verbs_rail *rail,
                                     const struct stepaf_mem *mem, int error)
{
    int setting = verbs->base.up->env->verbs_gpu;

    if (mem->kind == STEPAF_MEM_HOST)
        return stepaf_verbs_refuse(STEPAF_ERR_TRANSPORT, rail, mem->bytes, error);
    if (setting == STEPAF_ENV_VERBS_GPU_dmabuf || setting == STEPAF_ENV_VERBS_GPU_peermem)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT,
                                "STEPAF_VERBS_GPU=%s: %s: %s",
                                setting == STEPAF_ENV_VERBS_GPU_dmabuf ? "dmabuf" : "peermem",
                                rail->name, rail->gpu_why);
    stepaf_log_info("verbs: %s: GPU memory goes through bounce buffers: %s", rail->name,
                    rail->gpu_why);
    return STEPAF_OK;
}

stepaf_status_t stepaf_verbs_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;
    struct stepaf_verbs_memory *memory = calloc(1, sizeof(*memory));

    if (!memory)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    memory->mem = mem;
    memory->on_gpu = mem->kind == STEPAF_MEM_CUDA;
    stepaf_list_append(&verbs->memories, &memory->node);
    mem->registration[STEPAF_TRANSPORT_verbs] = memory;
    for (unsigned r = 0; r < verbs->n_rails; r++) {
        struct stepaf_verbs_rail *rail = &verbs->rails[r];
        memory->mr[r] = mem->kind == STEPAF_MEM_CUDA ? register_gpu(verbs, rail, mem)
                                                     : register_range(verbs, rail->pd, mem);
        if (!memory->mr[r]) {
            stepaf_status_t status = refuse_memory(verbs, rail, mem, errno);
            deregister(verbs, mem);
            return status;
        }
    }
    if (mem->kind == STEPAF_MEM_CUDA && stepaf_gpu_sync_memops(mem->gpu, mem->base))
        stepaf_log_info("verbs: %s", stepaf_last_error()->text); /* for memory mapped in pieces */
    return STEPAF_OK;
}

void stepaf_verbs_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    struct stepaf_verbs *verbs = (struct stepaf_verbs *)transport;

    if (mem->registration[STEPAF_TRANSPORT_verbs])
        deregister(verbs, mem);
}

/* Format "dma-buf over mlx5_0:1; ...", or "staged: mlx5_0:1: why". */
void stepaf_verbs_describe_gpu(const struct stepaf_transport *transport, char *text)
{
    const struct stepaf_verbs *verbs = (const struct stepaf_verbs *)transport;
    size_t used = 0;

    text[0] = '\0';
    for (unsigned r = 0; r < verbs->n_rails; r++) {
        const struct stepaf_verbs_rail *rail = &verbs->rails[r];
        if (rail->gpu == STEPAF_VERBS_GPU_STAGED) { /* one such rail is enough */
            snprintf(text, STEPAF_REASON_MAX, "staged: %.60s: %.120s", rail->name, rail->gpu_why);
            return;
        }
        if (rail->gpu == STEPAF_VERBS_GPU_UNKNOWN || used >= STEPAF_REASON_MAX)
            continue;
        used += (size_t)snprintf(
            text + used, STEPAF_REASON_MAX - used, "%s%s over %.60s%s%s%s", used ? "; " : "",
            rail->gpu == STEPAF_VERBS_GPU_DMABUF ? "dma-buf" : "peer memory", rail->name,
            rail->gpu_why[0] ? " (" : "", rail->gpu_why, rail->gpu_why[0] ? ")" : "");
    }
}
