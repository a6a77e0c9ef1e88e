/* SPDX-License-Identifier: Apache-2.0 */
/* Starting an operation. */
#ifndef STEPAF_CORE_START_H
#define STEPAF_CORE_START_H

#include "core/plan.h"

stepaf_status_t stepaf_plan_start(struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                                  stepaf_request_h *request_p);
/* Fill the posts of an operation as planned: set-up, and after a start with other tensors. */
void stepaf_op_compile(struct stepaf_op *op);
/* Whether the plan's next slot is free. */
bool stepaf_plan_slot_free(const struct stepaf_plan_obj *plan);

#endif
