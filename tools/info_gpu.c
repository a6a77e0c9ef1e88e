/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include <stepaf/status.h>

#include "device/gpu.h"
#include "info.h"

/* The GPU that a context would use here; it is opened, so that what is shown really works. */
void info_gpu(void)
{
    char reason[STEPAF_REASON_MAX] = "";
    struct stepaf_gpu *gpu;

    if (!stepaf_gpu_probe(reason)) {
        printf("%-16s none: %s\n", "GPU", reason);
        return;
    }
    if (stepaf_gpu_open(&gpu) != STEPAF_OK) {
        printf("%-16s cannot be used: %s\n", "GPU", stepaf_last_error()->text);
        return;
    }
    const struct stepaf_gpu_facts *facts = stepaf_gpu_facts(gpu);
    printf("%-16s %s at %s, %u multiprocessors\n", "GPU", facts->name, facts->bus, facts->n_sms);
    stepaf_gpu_close(gpu);
}
