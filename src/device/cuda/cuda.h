/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs through CUDA's driver API. The driver is looked up at run time, so the library also runs
 * without it. */
#ifndef STEPAF_DEVICE_CUDA_CUDA_H
#define STEPAF_DEVICE_CUDA_CUDA_H

#include "device/device_ops.h"

extern const struct stepaf_device_ops stepaf_cuda_ops;

#endif
