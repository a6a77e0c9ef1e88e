/* SPDX-License-Identifier: Apache-2.0 */
/* What src/device/cuda/kernels.cu does, in C and by one thread for all blocks. The pieces of a group are
 * the tensor's bytes as they are, with one word for all: both ends are this device's. */
#ifndef STEPAF_TEST_CPU_KERNELS_H
#define STEPAF_TEST_CPU_KERNELS_H

#include "device/kernels.h"

/* Run a kernel to its end. */
void cpu_kernel_run(enum stepaf_kernel kernel, const struct stepaf_kernel_args *args,
                    uint32_t blocks);

#endif
