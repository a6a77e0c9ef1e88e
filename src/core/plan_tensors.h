/* SPDX-License-Identifier: Apache-2.0 */
/* Resolving the keys and memory that a plan names. */
#ifndef STEPAF_CORE_PLAN_TENSORS_H
#define STEPAF_CORE_PLAN_TENSORS_H

#include "core/plan.h"

/* Check whether a plan of so many tensors, with these flags, is possible on this rank. */
stepaf_status_t stepaf_plan_check(const struct stepaf_ctx *ctx, const stepaf_tensor_t *push,
                                  int n_push, const stepaf_tensor_t *pull, int n_pull,
                                  uint32_t flags);
/* Find the key and the memory of each tensor, check that the tensor fits, and set the plan's depth:
 * the minimum of its keys' depths. */
stepaf_status_t stepaf_plan_take_tensors(struct stepaf_plan_obj *plan, const stepaf_tensor_t *push,
                                         const stepaf_tensor_t *pull);

#endif
