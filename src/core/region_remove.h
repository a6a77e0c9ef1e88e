/* SPDX-License-Identifier: Apache-2.0 */
/* Taking registered memory away: once nothing uses it, and no device reads it any more. */
#ifndef STEPAF_CORE_REGION_REMOVE_H
#define STEPAF_CORE_REGION_REMOVE_H

#include "core/region.h"

/* Wait until no device reads any more what was sent before: until peers have acknowledged it, or
 * are lost. STEPAF_ERR_TIMEOUT names one that has not. */
stepaf_status_t stepaf_regions_quiesce(struct stepaf_ctx *ctx, int64_t deadline_ns);
/* Wait until no device reads one region any more, which goes then. STEPAF_ERR_TIMEOUT as above. */
stepaf_status_t stepaf_region_remove(struct stepaf_ctx *ctx, void *base, bool allocated);

#endif
