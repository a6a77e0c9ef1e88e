/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether a batch can be answered, and whether an answer is valid. */
#ifndef STEPAF_CORE_BATCH_CHECK_H
#define STEPAF_CORE_BATCH_CHECK_H

#include <stepaf/stepaf.h>

#include "core/batch.h"
#include "core/ctx.h"
#include "core/remote_plan.h"

/* Return the error that says why a batch cannot be answered. */
stepaf_status_t stepaf_batch_refuse(const struct stepaf_batch_obj *batch) __attribute__((cold));
/* Check whether a batch can be answered at all. */
static inline stepaf_status_t stepaf_batch_check_state(const struct stepaf_batch_obj *batch)
{
    if (__builtin_expect(batch->answered | batch->canceled | batch->remote->peer->lost, 0))
        return stepaf_batch_refuse(batch);
    return STEPAF_OK;
}
/* Return the error that says what is wrong with tensor @a i of an answer. */
stepaf_status_t stepaf_batch_refuse_tensor(const struct stepaf_batch_obj *batch,
                                           const stepaf_tensor_t *tensor, int i)
    __attribute__((cold));
/* Return the error of an answer that was not sent because its sources cannot be read. */
stepaf_status_t stepaf_batch_no_source(void) __attribute__((cold));

#endif
