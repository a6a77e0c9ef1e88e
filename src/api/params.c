/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of parameter structures by their masks. */
#include "api/params.h"

stepaf_status_t stepaf_params_of_start(const stepaf_start_params_t *given,
                                       stepaf_start_params_t *params_p)
{
    uint64_t mask = given->field_mask;

    if (mask & ~(uint64_t)STEPAF_START_PARAM_ALL)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                "field_mask is 0x%llx, which has unknown bits",
                                (unsigned long long)mask);
    *params_p = (stepaf_start_params_t){.field_mask = mask, .timeout_us = STEPAF_TIMEOUT_DEFAULT};
    if (mask & STEPAF_START_PARAM_FLAGS)
        params_p->flags = given->flags;
    if (mask & STEPAF_START_PARAM_TIMEOUT)
        params_p->timeout_us = given->timeout_us;
    if (mask & STEPAF_START_PARAM_PUSH) {
        params_p->push = given->push;
        params_p->n_push = given->n_push;
    }
    if (mask & STEPAF_START_PARAM_ANSWERS)
        params_p->n_answers = given->n_answers;
    if (mask & STEPAF_START_PARAM_PATIENCE)
        params_p->patience_us = given->patience_us;
    return STEPAF_OK;
}
