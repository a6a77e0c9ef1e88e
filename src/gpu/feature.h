/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_GPU_FEATURE_H
#define STEPAF_GPU_FEATURE_H

#include "core/feature.h"

/* Plans on streams, and GPU memory in plans of the host's. */
extern const struct stepaf_feature_ops stepaf_gpu_feature;

#endif
