/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that can reject a start or make it wait. */
#ifndef STEPAF_CORE_START_CHECK_H
#define STEPAF_CORE_START_CHECK_H

#include "core/plan.h"

/* Check everything that can reject a start or make it wait. stepaf_start_skips returns whether the
 * start leaves peer @a p out. */
stepaf_status_t stepaf_start_check(struct stepaf_plan_obj *plan,
                                   const stepaf_start_params_t *params);
/* Check whether a plan's operations can complete with @a n_answers answers, and wait @a patience_us
 * for the others. */
stepaf_status_t stepaf_start_check_answers(const struct stepaf_plan_obj *plan, int n_answers,
                                           int64_t patience_us);
bool stepaf_start_skips(const struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                        uint32_t p);
/* Return how many answers the operation needs from the peers that it is for; UINT32_MAX: all. */
uint32_t stepaf_start_needs(const struct stepaf_plan_obj *plan,
                            const stepaf_start_params_t *params);

#endif
