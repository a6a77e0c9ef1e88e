/* SPDX-License-Identifier: Apache-2.0 */
/* Removing registered memory, once nothing uses it and no device reads it. */
#ifndef STEPAF_CORE_REGION_REMOVE_H
#define STEPAF_CORE_REGION_REMOVE_H

#include "core/region.h"

/* Wait until no device reads what was sent earlier: until peers have acknowledged it, or are lost.
 * STEPAF_ERR_TIMEOUT names a peer that has not. */
stepaf_status_t stepaf_regions_quiesce(struct stepaf_ctx *ctx, int64_t deadline_ns);
/* Wait until no device reads one region, then free it. STEPAF_ERR_TIMEOUT as above. */
stepaf_status_t stepaf_region_remove(struct stepaf_ctx *ctx, void *base, bool allocated);

#endif
