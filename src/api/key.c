/* SPDX-License-Identifier: Apache-2.0 */
/* Keys in the public interface. */
#include "core/key.h"
#include "api/handles.h"
#include "core/key_recv.h"
#include "core/key_remove.h"
#include "core/progress.h"

stepaf_status_t stepaf_key_declare(stepaf_context_h handle, uint64_t key,
                                   stepaf_direction_t direction, size_t max_bytes,
                                   const stepaf_key_params_t *params)
{
    static const stepaf_key_params_t defaults;
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    status = stepaf_key_add(ctx, key, direction, max_bytes, params ? params : &defaults);
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_key_withdraw(stepaf_context_h handle, uint64_t key)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    stepaf_core_progress(ctx); /* a one-shot operation's release may have arrived already */
    status = stepaf_key_remove(ctx, key);
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_key_set_recv(stepaf_context_h handle, uint64_t key, void *buffer,
                                    size_t bytes, const int *ranks, int n_ranks)
{
    struct stepaf_ctx *ctx;
    stepaf_status_t status = stepaf_enter_context(handle, &ctx);

    if (status)
        return status;
    if (stepaf_is_attention(ctx))
        status =
            stepaf_error_set(STEPAF_ERR_ROLE, STEPAF_PHASE_NONE, "only FFN ranks receive pushes");
    else
        status = stepaf_key_receive(ctx, key, buffer, bytes, ranks, n_ranks);
    stepaf_leave(ctx);
    return status;
}
