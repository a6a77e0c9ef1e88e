/* SPDX-License-Identifier: Apache-2.0 */
/* Announcing plans to the peers. */
#ifndef STEPAF_CORE_PLAN_ANNOUNCE_H
#define STEPAF_CORE_PLAN_ANNOUNCE_H

#include "core/plan.h"

/* Announce a plan to all peers, if they know its keys and memory. */
stepaf_status_t stepaf_plan_announce(struct stepaf_plan_obj *plan);
/* Announce all such plans, in the order of making: stream plans of proxied peers take arriving
 * plans in their order. */
stepaf_status_t stepaf_plans_announce(struct stepaf_ctx *ctx);
/* Tell the first @a n peers that the plan ends. */
void stepaf_plan_announce_end(const struct stepaf_plan_obj *plan, uint32_t n);
/* Free what transports have built for an operation's posts. */
void stepaf_op_drop_templates(struct stepaf_op *op);

#endif
