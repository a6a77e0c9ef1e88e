/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: their life cycle, and code shared by all of their methods. */
#include <stdlib.h>
#include <time.h>

#include "core.h"

bool stepaf_py_is_open(context_obj *ctx)
{
    if (__builtin_expect(ctx->handle && !ctx->closing && ctx->forks == stepaf_py_forks, 1))
        return true;
    if (ctx->handle && ctx->forks != stepaf_py_forks)
        (void)stepaf_py_refuse(STEPAF_ERR_HANDLE, "the context belongs to the parent process");
    else
        (void)stepaf_py_refuse(STEPAF_ERR_HANDLE, "the context is closed, or was never opened");
    return false;
}

static int context_init(context_obj *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"role", "progress", "threads", "split", NULL};
    int role = -1, progress = -1, threads = -1;
    const char *split = NULL;
    stepaf_params_t params = {0};
    stepaf_context_h handle;
    stepaf_status_t status;
    bool good;

    if (!stepaf_py_parse(args, kwargs, "|iiiz", names, &role, &progress, &threads, &split))
        return -1;
    if (!stepaf_py_lib.version_ || self->was_open) {
        (void)PyErr_Format(PyExc_RuntimeError, "%s",
                           self->was_open ? "the context has been opened before: make another"
                                          : "no library is loaded");
        return -1;
    }
    params.field_mask = (role < 0 ? 0 : STEPAF_PARAM_ROLE) |
                        (progress < 0 ? 0 : STEPAF_PARAM_PROGRESS) |
                        (threads < 0 ? 0 : STEPAF_PARAM_THREADS) | (split ? STEPAF_PARAM_SPLIT : 0);
    params.role = (stepaf_role_t)role;
    params.progress = (stepaf_progress_mode_t)progress;
    params.threads = (stepaf_threads_t)threads;
    params.split = split;
    WAITING(self, &good, status = LIB(init)(NULL, &params, &handle));
    if (!good) {
        if (!status)
            UNLOCKED(self, true, LIB(finalize)(handle));
        return -1;
    }
    if (status) {
        (void)stepaf_py_raise(status);
        return -1;
    }
    self->forks = stepaf_py_forks;
    self->closing = false;
    self->timeout_us = LIB(default_timeout_us)(handle);
    self->handle = handle;
    self->was_open = true;
    return 0;
}

/* After this the context's memory no longer exists, and foreign memory is no longer written to. */
static void leave_job(context_obj *ctx)
{
    stepaf_context_h handle = ctx->handle;

    ctx->handle = NULL;
    if (ctx->forks == stepaf_py_forks)
        UNLOCKED(ctx, true, LIB(finalize)(handle));
    while (ctx->registered) {
        struct hold *hold = ctx->registered;
        ctx->registered = hold->next;
        stepaf_py_hold_drop(hold);
    }
    stepaf_py_plans_retry(ctx); /* which only forgets them: they have ended */
    while (ctx->dropped) {
        struct hold *hold = ctx->dropped;
        ctx->dropped = hold->next;
        free(hold);
    }
}

void stepaf_py_export_end(context_obj *ctx)
{
    if (--ctx->n_exports == 0 && ctx->closing && ctx->handle && !ctx->n_inside)
        leave_job(ctx);
}

/* Waiting threads notice at the end of a piece of their wait that the context is closing. A
 * barrier or a commit does not wait in pieces: the library ends it when this rank leaves the
 * job. */
static void await_others(context_obj *ctx, bool force)
{
    /* Other threads may begin or end reads of the memory meanwhile. */
    while (ctx->n_inside > (force || !ctx->n_exports ? ctx->n_long : 0) &&
           ctx->forks == stepaf_py_forks) {
        Py_BEGIN_ALLOW_THREADS;
        (void)nanosleep(&(struct timespec){0, 200000}, NULL);
        Py_END_ALLOW_THREADS;
    }
}

static PyObject *context_close(context_obj *self, PyObject *args)
{
    int force = 0;

    if (!PyArg_ParseTuple(args, "|p", &force))
        return NULL;
    if (!self->handle)
        Py_RETURN_NONE;
    self->closing = true;
    await_others(self, force);
    /* Another thread may have closed it by now. Memory that others read by its address must
     * stay: the end of the last export then leaves the job. */
    if (self->handle && (force || !self->n_exports))
        leave_job(self);
    Py_RETURN_NONE;
}

static void context_dealloc(context_obj *self)
{
    PyTypeObject *type = Py_TYPE(self);

    /* No tensor, plan, request or batch exists any more: each holds a reference. */
    if (self->handle)
        leave_job(self);
    Py_XDECREF(self->keys);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *get_closed(context_obj *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(!stepaf_py_is_there(self) || self->closing);
}

static PyObject *get_exports(context_obj *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLong(self->n_exports);
}

static PyObject *get_handle(context_obj *self, void *closure)
{
    (void)closure;
    return stepaf_py_is_open(self) ? PyLong_FromVoidPtr(self->handle) : NULL;
}

static PyObject *get_timeout(context_obj *self, void *closure)
{
    (void)closure;
    return PyFloat_FromDouble((double)self->timeout_us / 1e6);
}

static PyGetSetDef properties[] = {
    {"closed", (getter)get_closed, NULL, "Whether the context is closed.", NULL},
    {"exports", (getter)get_exports, NULL,
     "How many readers by address the context's memory has: memoryviews, arrays, torch tensors.",
     NULL},
    {"handle", (getter)get_handle, NULL, "The stepaf_context_h, as an integer.", NULL},
    {"default_timeout", (getter)get_timeout, NULL,
     "Seconds that a timeout of None stands for (STEPAF_TIMEOUT_US).", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef own_methods[] = {
    {"_close", (PyCFunction)context_close, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef *const subjects[] = {own_methods,
                                        stepaf_py_context_setup,
                                        stepaf_py_context_members,
                                        stepaf_py_context_memory,
                                        stepaf_py_context_plans,
                                        stepaf_py_context_recv,
                                        stepaf_py_context_look};

enum { METHODS_MAX = 64 };
static PyMethodDef methods[METHODS_MAX];

static __attribute__((constructor)) void join_methods(void)
{
    size_t n = 0;

    for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
        for (const PyMethodDef *method = subjects[i]; method->ml_name && n < METHODS_MAX - 1;
             method++)
            methods[n++] = *method;
}

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)"What stepaf.Context is made of."},
    {Py_tp_init, context_init},
    {Py_tp_dealloc, context_dealloc},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec stepaf_py_context_spec = {
    .name = "stepaf._core.Context",
    .basicsize = sizeof(context_obj),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
