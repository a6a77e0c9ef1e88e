/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs by CUDA's driver API, which is looked up at run time: the same library runs where there is
 * none. */
#ifndef STEPAF_DEVICE_CUDA_CUDA_H
#define STEPAF_DEVICE_CUDA_CUDA_H

#include "device/device_ops.h"

extern const struct stepaf_device_ops stepaf_cuda_ops;

#endif
