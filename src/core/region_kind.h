/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of memory that the caller has given. */
#ifndef STEPAF_CORE_REGION_KIND_H
#define STEPAF_CORE_REGION_KIND_H

#include "core/region.h"

struct stepaf_gpu;

/* The GPU of this context, opened by the first call that needs one */
stepaf_status_t stepaf_ctx_gpu(struct stepaf_ctx *ctx, struct stepaf_gpu **gpu_p);
/* Find out what kind of memory the caller has given: sets kind and shareable of @a region. */
stepaf_status_t stepaf_ctx_place(struct stepaf_ctx *ctx, struct stepaf_region *region);

#endif
