/* SPDX-License-Identifier: Apache-2.0 */
/* What could reject a start, or make it wait. */
#ifndef STEPAF_CORE_START_CHECK_H
#define STEPAF_CORE_START_CHECK_H

#include "core/plan.h"

/* Check everything that could reject a start, or make it wait. _skips: whether the start leaves out
 * peer @a p. */
stepaf_status_t stepaf_start_check(struct stepaf_plan_obj *plan,
                                   const stepaf_start_params_t *params);
/* Whether a plan's operations can complete with this many answers, and wait this long for the
 * others. */
stepaf_status_t stepaf_start_check_answers(const struct stepaf_plan_obj *plan, int n_answers,
                                           int64_t patience_us);
bool stepaf_start_skips(const struct stepaf_plan_obj *plan, const stepaf_start_params_t *params,
                        uint32_t p);
/* How many answers the operation needs of the peers that it is for; UINT32_MAX: all. */
uint32_t stepaf_start_needs(const struct stepaf_plan_obj *plan,
                            const stepaf_start_params_t *params);

#endif
