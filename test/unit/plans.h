/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of either role, for tests that run the same code on both sides. */
#ifndef TEST_PLANS_H
#define TEST_PLANS_H

#include <stepaf/stepaf.h>

/* Make the plan of these tensors for a rank of the context's role: an FFN rank receives the keys
 * of @a push, and answers from @a pull. */
static inline stepaf_status_t plan_create(stepaf_context_h ctx, const stepaf_tensor_t *push,
                                          int n_push, const stepaf_tensor_t *pull, int n_pull,
                                          uint32_t flags, stepaf_plan_h *plan_p)
{
    uint64_t keys[STEPAF_MAX_TENSORS];

    if (stepaf_role(ctx) == STEPAF_ATTENTION)
        return stepaf_plan_create(ctx, push, n_push, pull, n_pull, flags, plan_p);
    for (int i = 0; i < n_push; i++)
        keys[i] = push[i].key;
    return stepaf_plan_create_ffn(ctx, keys, n_push, pull, n_pull, flags, plan_p);
}

#endif
