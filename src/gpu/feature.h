/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_GPU_FEATURE_H
#define STEPAF_GPU_FEATURE_H

#include "core/feature.h"

/* The table by which the core reaches stream plans, and GPU memory in plans that the host
 * starts. */
extern const struct stepaf_feature_ops stepaf_gpu_feature;

#endif
