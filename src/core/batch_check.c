/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of answers that are rejected. */
#include "core/batch_check.h"

#include "core/batch.h"
#include "core/ctx.h"
#include "core/region.h"
#include "core/remote_plan.h"

stepaf_status_t stepaf_batch_refuse(const struct stepaf_batch_obj *batch)
{
    const struct stepaf_peer *peer = batch->remote->peer;

    if (batch->answered)
        return stepaf_error_set(STEPAF_ERR_STATE, STEPAF_PHASE_RESPOND,
                                "the batch is answered already");
    if (peer->lost)
        return stepaf_error_set_peer(STEPAF_ERR_PEER_LOST, STEPAF_PHASE_RESPOND, peer->who,
                                     STEPAF_WHO_FORMAT " is lost: %s", STEPAF_WHO_ARGS(peer->who),
                                     peer->reason);
    return stepaf_error_set_peer(STEPAF_ERR_CANCELED, STEPAF_PHASE_RESPOND, peer->who,
                                 STEPAF_WHO_FORMAT " has canceled the operation",
                                 STEPAF_WHO_ARGS(peer->who));
}

stepaf_status_t stepaf_batch_refuse_tensor(const struct stepaf_batch_obj *batch,
                                           const stepaf_tensor_t *tensor, int i)
{
    const struct stepaf_remote_plan_pull *pull = &batch->remote->pull[i];

    if (tensor->key != pull->key_id)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RESPOND,
                                "tensor %d has key %llu, expected is %llu", i,
                                (unsigned long long)tensor->key, (unsigned long long)pull->key_id);
    if (tensor->bytes > pull->bytes)
        return stepaf_error_set(STEPAF_ERR_SIZE, STEPAF_PHASE_RESPOND,
                                "tensor %d: %zu bytes, but the destination holds %u", i,
                                tensor->bytes, pull->bytes);
    return stepaf_region_refuse(batch->remote->peer->ctx, tensor->data, tensor->bytes,
                                STEPAF_PHASE_RESPOND, "tensor", i);
}

stepaf_status_t stepaf_batch_no_source(void)
{
    return stepaf_error_set(
        STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_RESPOND,
        "a tensor of the answer is in registered memory of this rank that is no longer mapped");
}
