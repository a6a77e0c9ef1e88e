/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of UCX and GPU memory, both made up, begin and end with. */
#ifndef STEPAF_TEST_UCX_GPU_CASE_H
#define STEPAF_TEST_UCX_GPU_CASE_H

#include "device/gpu.h"

extern struct stepaf_gpu *gpu_case; /* the GPU, in between */

/* A GPU, and a UCX that has CUDA, and network cards that reach it. @a setting: STEPAF_UCX_GPU. */
void gpu_case_begin(const char *setting);
/* Assert that nothing is left of either. */
void gpu_case_end(void);

#endif
