/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory. A provider with FI_HMEM registers it directly; otherwise it goes through a bounce
 * buffer.
 *
 * Providers without a NIC, such as shm, copy GPU memory with CUDA calls in the thread that
 * progresses. These calls wait for all work in the default stream, and so for ever for a kernel
 * there that waits for this very message. Therefore a provider must promise that it makes none, by
 * FI_OPT_CUDA_API_PERMITTED (libfabric 1.18). If it does not know that option, as before 1.18, it
 * must promise FI_HMEM_P2P_REQUIRED, that only NICs transfer (fi_endpoint(3)).
 * STEPAF_OFI_GPU=direct accepts a provider without the promise. A provider that does not promise is
 * opened without FI_HMEM: with it, some are slower with host memory, or make CUDA calls for host
 * memory, too. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "device/gpu.h"
#include "settings/settings.h"
#include "transport/ofi/ofi.h"

enum { CUDA_API_PERMITTED = FI_OPT_XPU_TRIGGER + 1 }; /* FI_OPT_CUDA_API_PERMITTED of 1.18 */

/* By the names of devices. */
static const struct {
    const char *device;
    enum fi_hmem_iface iface;
} ifaces[] = {{"cuda", FI_HMEM_CUDA}};

const char *stepaf_ofi_no_gpu(const struct stepaf_upcalls *up)
{
    if (up->env->ofi_gpu == STEPAF_ENV_OFI_GPU_staged)
        return "STEPAF_OFI_GPU=staged";
    return up->gpu ? NULL : "this rank had no GPU memory when libfabric was opened";
}

void stepaf_ofi_prepare_gpu(struct stepaf_ofi_rail *rail)
{
    int required = FI_HMEM_P2P_REQUIRED;
    bool permitted = false;

    if (!(rail->info->caps & FI_HMEM))
        return;
    int by_card =
        fi_setopt(&rail->ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &required, sizeof(required));
    int without_calls = fi_setopt(&rail->ep->fid, FI_OPT_ENDPOINT, CUDA_API_PERMITTED, &permitted,
                                  sizeof(permitted));
    rail->makes_no_calls = !without_calls || (without_calls == -FI_ENOPROTOOPT && !by_card);
}

bool stepaf_ofi_keep_gpu(struct stepaf_ofi *ofi)
{
    ofi->gpu.promises = true;
    for (unsigned r = 0; r < ofi->n_rails; r++)
        ofi->gpu.promises = ofi->gpu.promises && ofi->rails[r].makes_no_calls;
    if (ofi->gpu.promises || ofi->shared.base.up->env->ofi_gpu == STEPAF_ENV_OFI_GPU_direct)
        return true;
    snprintf(ofi->gpu.never, sizeof(ofi->gpu.never),
             "this provider may make CUDA calls, which wait for streams (STEPAF_OFI_GPU=direct)");
    return false;
}

bool stepaf_ofi_gpu_attr(struct stepaf_ofi *ofi, const struct stepaf_mem *mem,
                         struct fi_mr_attr *attr_p)
{
    const struct stepaf_gpu_rdma *rdma = stepaf_gpu_rdma(mem->gpu);
    const char *why = ofi->gpu.never;

    if (!why[0] && rdma->two_ways)
        why = "the GPU has two paths to its memory, which cannot be flushed";
    else if (!why[0])
        why = rdma->no_flush;
    snprintf(ofi->gpu.why, sizeof(ofi->gpu.why), "%s", why);
    for (size_t i = 0; i < sizeof(ifaces) / sizeof(*ifaces) && !why[0]; i++) {
        if (strcmp(mem->gpu->ops.name, ifaces[i].device) != 0)
            continue;
        attr_p->iface = ifaces[i].iface;
        attr_p->device.cuda = stepaf_gpu_facts(mem->gpu)->ordinal;
        return true;
    }
    if (!why[0])
        snprintf(ofi->gpu.why, sizeof(ofi->gpu.why), "libfabric does not support memory of %.40s",
                 mem->gpu->ops.name);
    return false;
}

stepaf_status_t stepaf_ofi_note_gpu(struct stepaf_ofi *ofi, const struct stepaf_mem *mem,
                                    bool is_taken)
{
    ofi->gpu.way = is_taken ? STEPAF_OFI_GPU_DIRECT : STEPAF_OFI_GPU_STAGED;
    if (is_taken) {
        ofi->gpu.why[0] = '\0';
        if (stepaf_gpu_sync_memops(mem->gpu, mem->base))
            stepaf_log_info("ofi: %s", stepaf_last_error()->text); /* for memory mapped in pieces */
        return STEPAF_OK;
    }
    if (ofi->shared.base.up->env->ofi_gpu == STEPAF_ENV_OFI_GPU_direct)
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT,
                                "STEPAF_OFI_GPU=direct: %.40s: %.160s", ofi->shared.name,
                                ofi->gpu.why);
    stepaf_log_info("ofi: %s: GPU memory goes through bounce buffers: %s", ofi->shared.name,
                    ofi->gpu.why);
    return STEPAF_OK;
}

void stepaf_ofi_describe_gpu(const struct stepaf_transport *transport, char *text)
{
    const struct stepaf_ofi *ofi = (const struct stepaf_ofi *)transport;

    text[0] = '\0';
    if (ofi->gpu.way == STEPAF_OFI_GPU_STAGED)
        snprintf(text, STEPAF_REASON_MAX, "staged: %.40s: %.140s", ofi->shared.name, ofi->gpu.why);
    else if (ofi->gpu.way == STEPAF_OFI_GPU_DIRECT)
        snprintf(text, STEPAF_REASON_MAX, "FI_HMEM over %.60s%s", ofi->shared.name,
                 ofi->gpu.promises ? "" : " (STEPAF_OFI_GPU=direct: it may wait for streams)");
}
