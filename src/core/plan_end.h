/* SPDX-License-Identifier: Apache-2.0 */
/* Ending plans, and eviction from the cache of stepaf_push_pull. */
#ifndef STEPAF_CORE_PLAN_END_H
#define STEPAF_CORE_PLAN_END_H

#include "core/plan.h"

struct stepaf_region;

/* Check whether nothing of a plan is in flight, so that it can end. STEPAF_ERR_STATE: something
 * is. */
stepaf_status_t stepaf_plan_idle(const struct stepaf_plan_obj *plan);
stepaf_status_t stepaf_plan_end(struct stepaf_plan_obj *plan);
/* End plans of stepaf_push_pull that nobody needs: all that use @a region, if nothing else uses it;
 * the least recently used one. */
enum { STEPAF_MAX_CACHED = 1024 };
void stepaf_plans_uncache(struct stepaf_ctx *ctx, const struct stepaf_region *region);
void stepaf_plans_uncache_oldest(struct stepaf_ctx *ctx);

#endif
