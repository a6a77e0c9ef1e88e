/* SPDX-License-Identifier: Apache-2.0 */
/* Plans made known to the peers. */
#ifndef STEPAF_CORE_PLAN_ANNOUNCE_H
#define STEPAF_CORE_PLAN_ANNOUNCE_H

#include "core/plan.h"

/* Tell all peers of a plan whose keys and memory they know. */
stepaf_status_t stepaf_plan_announce(struct stepaf_plan_obj *plan);
/* Tell them of all such plans, in the order of making: stream plans of proxied peers take what
 * comes in its order. */
stepaf_status_t stepaf_plans_announce(struct stepaf_ctx *ctx);
/* Tell the first @a n of them that it ends. */
void stepaf_plan_announce_end(const struct stepaf_plan_obj *plan, uint32_t n);
/* Free what transports have put together for an operation's posts. */
void stepaf_op_drop_templates(struct stepaf_op *op);

#endif
