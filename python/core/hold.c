/* SPDX-License-Identifier: Apache-2.0 */
/* Owners of memory: allocations, batches and foreign objects. */
#include <stdlib.h>

#include "core.h"

struct hold *stepaf_py_hold(enum hold_kind kind, context_obj *ctx)
{
    struct hold *hold = calloc(1, sizeof(*hold));

    if (!hold) {
        PyErr_NoMemory();
        return NULL;
    }
    hold->kind = kind;
    hold->refs = 1;
    hold->ctx = ctx;
    Py_XINCREF((PyObject *)ctx);
    return hold;
}

/* Nothing refers to this batch, nor to a tensor of it: release it. */
static void give_back(const struct hold *hold)
{
    if (!hold->ended && stepaf_py_is_there(hold->ctx))
        BRIEFLY(hold->ctx, (void)LIB(release)(hold->batch));
}

void stepaf_py_hold_drop(struct hold *hold)
{
    context_obj *ctx = hold->ctx;

    if (--hold->refs)
        return;
    if (hold->kind == HOLD_BLOCK && !hold->ended && stepaf_py_is_there(ctx)) {
        /* Peers may be writing there: free it when nothing is in flight. */
        hold->ctx = NULL;
        hold->next = ctx->dropped;
        ctx->dropped = hold;
        Py_DECREF((PyObject *)ctx);
        return;
    }
    if (hold->kind == HOLD_BATCH)
        give_back(hold);
    if (hold->has_buffer)
        PyBuffer_Release(&hold->buffer);
    Py_XDECREF(hold->object);
    free(hold);
    Py_XDECREF((PyObject *)ctx);
}

const char *stepaf_py_hold_end(const struct hold *hold)
{
    if (hold->ctx && !hold->ctx->handle)
        return "the tensor is in memory of a context that is closed";
    if (hold->ctx && !stepaf_py_is_there(hold->ctx))
        return "the tensor is in memory of the parent process's context";
    if (hold->ended)
        return hold->kind == HOLD_BATCH ? "the tensor belongs to a batch that is released"
                                        : "the tensor is in memory that is freed";
    if (hold->epoch && hold->epoch != LIB(epoch)(hold->ctx->handle))
        return "the tensor is in memory that was valid until the last commit";
    return NULL;
}

bool stepaf_py_hold_check(const struct hold *hold)
{
    const char *why = stepaf_py_hold_end(hold);

    if (why)
        (void)stepaf_py_refuse(STEPAF_ERR_HANDLE, "%s", why);
    return !why;
}

void stepaf_py_sweep(context_obj *ctx)
{
    struct hold *left = ctx->dropped, *next;

    /* Other threads may drop more while the interpreter lock is released. */
    ctx->dropped = NULL;
    for (struct hold *hold = left; hold; hold = next) {
        stepaf_status_t status = STEPAF_OK;
        next = hold->next;
        if (stepaf_py_is_there(ctx))
            UNLOCKED(ctx, true, status = LIB(free)(ctx->handle, hold->base));
        if (status == STEPAF_ERR_STATE && ctx->handle) { /* a plan names it */
            hold->next = ctx->dropped;
            ctx->dropped = hold;
        } else {
            free(hold);
        }
    }
}
