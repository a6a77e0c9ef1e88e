/* SPDX-License-Identifier: Apache-2.0 */
/* Detecting the kind of memory that the caller has given, and opening the GPU. */
#ifndef STEPAF_CORE_REGION_KIND_H
#define STEPAF_CORE_REGION_KIND_H

#include "core/region.h"

struct stepaf_gpu;

/* Return the GPU of this context. The first call that needs the GPU opens it. */
stepaf_status_t stepaf_ctx_gpu(struct stepaf_ctx *ctx, struct stepaf_gpu **gpu_p);
/* Detect the kind of memory that the caller has given: set kind and shareable of @a region. */
stepaf_status_t stepaf_ctx_place(struct stepaf_ctx *ctx, struct stepaf_region *region);

#endif
