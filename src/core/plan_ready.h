/* SPDX-License-Identifier: Apache-2.0 */
/* Whether FFN ranks can know everything that a plan names. */
#ifndef STEPAF_CORE_PLAN_READY_H
#define STEPAF_CORE_PLAN_READY_H

#include "core/plan.h"

bool stepaf_plan_ready(const struct stepaf_plan_obj *plan);
/* Return STEPAF_ERR_STATE with the reason why a plan that is not on streams cannot be started. */
stepaf_status_t stepaf_plan_refuse_unready(const struct stepaf_plan_obj *plan);

#endif
