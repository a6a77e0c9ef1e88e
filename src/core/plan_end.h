/* SPDX-License-Identifier: Apache-2.0 */
/* How a plan ends, also one that stepaf_push_pull has made. */
#ifndef STEPAF_CORE_PLAN_END_H
#define STEPAF_CORE_PLAN_END_H

#include "core/plan.h"

struct stepaf_region;

/* Whether nothing of a plan is in flight; STEPAF_ERR_STATE: something is. Then it can end. */
stepaf_status_t stepaf_plan_idle(const struct stepaf_plan_obj *plan);
stepaf_status_t stepaf_plan_end(struct stepaf_plan_obj *plan);
/* End plans that stepaf_push_pull has made and nothing needs: all that use @a region, if nothing
 * else does; the one that was used longest ago. */
enum { STEPAF_MAX_CACHED = 1024 };
void stepaf_plans_uncache(struct stepaf_ctx *ctx, const struct stepaf_region *region);
void stepaf_plans_uncache_oldest(struct stepaf_ctx *ctx);

#endif
