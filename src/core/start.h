/* SPDX-License-Identifier: Apache-2.0 */
/* Starting an operation. */
#ifndef STEPAF_CORE_START_H
#define STEPAF_CORE_START_H

#include "core/key.h"
#include "core/plan.h"

stepaf_status_t stepaf_plan_start(struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                                  stepaf_request_h *request_p);
/* Fill the posts of an operation as planned: at set-up, and after a start with other tensors. */
void stepaf_op_compile(struct stepaf_op *op);
/* Return zero if the slot is free: all parts and their posts are over, and all peers have released
 * the slot and the keys' buffers, which operations of other plans may use too. Buffers of lost
 * peers were reclaimed. */
static inline uint32_t stepaf_plan_slot_use(const struct stepaf_plan_obj *plan,
                                            const struct stepaf_op *op)
{
    uint32_t busy = 0;

    for (uint32_t i = 0; i < plan->n_push; i++)
        busy |= plan->push[i].key->busy;
    return op->answers.pending | op->n_held | (busy & op->bit);
}
/* Return whether the plan's next slot is free. */
static inline bool stepaf_plan_slot_free(const struct stepaf_plan_obj *plan)
{
    return !stepaf_plan_slot_use(plan, plan->next);
}

#endif
