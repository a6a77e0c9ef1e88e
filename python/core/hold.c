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
    if (hold->kind == HOLD_PLAN && !((const plan_obj *)hold->object)->handle)
        return "the tensor belongs to a plan that is destroyed";
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

struct left_plan {
    stepaf_plan_h plan;
    struct left_plan *next;
};

void stepaf_py_plan_drop(context_obj *ctx, stepaf_plan_h plan)
{
    stepaf_status_t status;

    BRIEFLY(ctx, status = LIB(plan_destroy)(plan));
    if (status == STEPAF_OK || status == STEPAF_ERR_HANDLE || !ctx->handle)
        return;
    struct left_plan *left = malloc(sizeof(*left));
    if (!left)
        return; /* the plan stays until the context is closed */
    left->plan = plan;
    left->next = ctx->left_plans;
    ctx->left_plans = left;
}

void stepaf_py_plans_retry(context_obj *ctx)
{
    struct left_plan *left = ctx->left_plans, *next;

    /* Other threads may drop more, or close the context, while the interpreter lock is released. */
    ctx->left_plans = NULL;
    for (; left; left = next) {
        next = left->next;
        if (stepaf_py_is_there(ctx))
            stepaf_py_plan_drop(ctx, left->plan);
        free(left);
    }
}

/* Put memory back to that which is to be freed, or forget it if the context has ended. */
static void put_back(context_obj *ctx, struct hold *left)
{
    struct hold **link = &ctx->dropped, *next;

    while (*link)
        link = &(*link)->next;
    for (; left; left = next) {
        next = left->next;
        left->next = NULL;
        if (ctx->handle) {
            *link = left;
            link = &left->next;
        } else {
            free(left);
        }
    }
}

bool stepaf_py_sweep(context_obj *ctx)
{
    struct hold *left, *kept = NULL;
    bool is_late = false, good = true;

    stepaf_py_plans_retry(ctx); /* which may name the memory */
    left = ctx->dropped;
    /* Other threads may drop more while the interpreter lock is released. */
    ctx->dropped = NULL;
    while (left && !is_late && good) {
        struct hold *hold = left;
        stepaf_status_t status = STEPAF_ERR_HANDLE;
        left = hold->next;
        if (stepaf_py_is_there(ctx))
            UNLOCKED(ctx, true, status = LIB(free)(ctx->handle, hold->base));
        if (status && status != STEPAF_ERR_HANDLE && status != STEPAF_ERR_UNREGISTERED) {
            hold->next = kept; /* a plan names it, or a peer may still read it */
            kept = hold;
        } else {
            free(hold);
        }
        is_late = status == STEPAF_ERR_TIMEOUT; /* so would the others be */
        good = !PyErr_CheckSignals();
    }
    put_back(ctx, left);
    put_back(ctx, kept); /* what was late is tried last */
    return good;
}
