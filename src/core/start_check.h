/* SPDX-License-Identifier: Apache-2.0 */
/* What could refuse a start, or have it wait. */
#ifndef STEPAF_CORE_START_CHECK_H
#define STEPAF_CORE_START_CHECK_H

#include "core/plan.h"

/* Check everything that could refuse a start, or have it wait; whether it leaves peer @a p out. */
stepaf_status_t stepaf_start_check(struct stepaf_plan_obj *plan,
                                   const stepaf_start_params_t *params);
bool stepaf_start_skips(const struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                        uint32_t p);

#endif
