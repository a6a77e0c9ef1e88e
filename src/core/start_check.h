/* SPDX-License-Identifier: Apache-2.0 */
/* What could refuse a start, or have it wait. */
#ifndef STEPAF_CORE_START_CHECK_H
#define STEPAF_CORE_START_CHECK_H

#include "core/plan.h"

/* Check everything that could refuse a start, or have it wait; whether it leaves peer @a p out. */
stepaf_status_t stepaf_start_check(struct stepaf_plan_obj *plan,
                                   const stepaf_start_params_t *params);
/* Whether a plan's operations can be complete with so many answers, and wait so long for the
 * others. */
stepaf_status_t stepaf_start_check_answers(const struct stepaf_plan_obj *plan, int n_answers,
                                           int64_t patience_us);
bool stepaf_start_skips(const struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                        uint32_t p);
/* How many answers the operation takes of the peers that it is for; UINT32_MAX: all. */
uint32_t stepaf_start_needs(const struct stepaf_plan_obj *plan,
                            const stepaf_start_params_t *params);

#endif
