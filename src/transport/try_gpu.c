/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/try_gpu.h"

enum { TRY_BYTES = 64 << 10 };

void stepaf_transport_try_gpu(const struct stepaf_transport_ops *ops, const struct stepaf_env *env,
                              struct stepaf_gpu *gpu,
                              void (*more)(const struct stepaf_transport *transport, char *text),
                              char *text)
{
    struct stepaf_upcalls up = {.env = env, .gpu = stepaf_gpu_facts(gpu)->bus};
    struct stepaf_mem mem = {.bytes = TRY_BYTES, .kind = STEPAF_MEM_CUDA, .fd = -1, .gpu = gpu};
    struct stepaf_transport *transport;
    stepaf_status_t status = ops->open(&up, 1, &transport);
    void *base = NULL;

    if (!status) {
        status = stepaf_gpu_alloc(gpu, TRY_BYTES, &base);
        mem.base = base;
        if (!status)
            status = ops->reg_mem(transport, &mem);
        ops->describe_gpu(transport, text);
        if (more)
            more(transport, text);
        ops->close(transport);
        stepaf_gpu_free(gpu, base);
    }
    if (status)
        snprintf(text, STEPAF_REASON_MAX, "%.180s", stepaf_last_error()->text);
}
