/* SPDX-License-Identifier: Apache-2.0 */
/* After the connects of the first commit, where some transport asks for it: nobody sends before all
 * have connected, and where one could not, all learn why. The other end of a link that could not be
 * made knows nothing of that by itself. */
#include <stdlib.h>

#include "engine/connect.h"

/* The first rank's failure, as this rank's own, unless that has one. */
static stepaf_status_t judge(const struct stepaf_ctx *ctx, const uint8_t *all,
                             const size_t *offsets)
{
    char text[STEPAF_ERROR_TEXT_MAX];

    for (int r = 0; r < ctx->boot.size; r++) {
        struct stepaf_unpack unpack =
            stepaf_unpack_from(all + offsets[r], offsets[r + 1] - offsets[r]);
        stepaf_status_t status = stepaf_status_from(stepaf_unpack_u32(&unpack));
        stepaf_unpack_text(&unpack, text, sizeof(text));
        if (unpack.failed)
            return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                    "world rank %d: what it says of its links is malformed", r);
        if (status)
            return stepaf_error_set(status, STEPAF_PHASE_COMMIT, "world rank %d: %.280s", r, text);
    }
    return STEPAF_OK;
}

static stepaf_status_t tell_all(struct stepaf_ctx *ctx, stepaf_status_t own, const char *text,
                                int64_t timeout_us)
{
    size_t *offsets = calloc((size_t)ctx->boot.size + 1, sizeof(*offsets));
    struct stepaf_pack pack = {0};
    stepaf_status_t status;
    void *all = NULL;

    stepaf_pack_u32(&pack, (uint32_t)own);
    stepaf_pack_text(&pack, own ? text : "");
    if (!offsets || pack.failed)
        status = stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_COMMIT, "out of memory");
    else
        status =
            ctx->boot.allgather(ctx->boot.self, pack.data, pack.bytes, &all, offsets, timeout_us);
    if (!status && !own)
        status = judge(ctx, all, offsets);
    free(pack.data);
    free(offsets);
    free(all);
    return status;
}

stepaf_status_t stepaf_ranks_meet(struct stepaf_ctx *ctx,
                                  const struct stepaf_declaration *declarations,
                                  stepaf_status_t own, int64_t deadline_ns)
{
    stepaf_error_t error = *stepaf_last_error();
    int64_t left_us = (deadline_ns - stepaf_monotonic_ns()) / 1000;
    bool any = false;

    for (int r = 0; r < ctx->boot.size; r++)
        any = any || declarations[r].meets;
    if (!any || ctx->epoch > 1)
        return own;
    stepaf_status_t status = tell_all(ctx, own, error.text, left_us > 0 ? left_us : 1);
    return own ? stepaf_error_raise(&error) : status;
}
