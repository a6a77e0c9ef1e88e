/* SPDX-License-Identifier: Apache-2.0 */
/* Announcing plans to the peers. */
#ifndef STEPAF_CORE_PLAN_ANNOUNCE_H
#define STEPAF_CORE_PLAN_ANNOUNCE_H

#include "core/plan.h"

/* Announce a plan to all peers. The peers know its keys and memory. */
stepaf_status_t stepaf_plan_announce(struct stepaf_plan_obj *plan);
/* Announce all such plans in the order in which they were made: stream plans of proxied peers
 * receive in that order. */
stepaf_status_t stepaf_plans_announce(struct stepaf_ctx *ctx);
/* Notify the first @a n peers that the plan ends. */
void stepaf_plan_announce_end(const struct stepaf_plan_obj *plan, uint32_t n);
/* Free the templates that transports have prepared for an operation's posts. */
void stepaf_op_drop_templates(struct stepaf_op *op);

#endif
