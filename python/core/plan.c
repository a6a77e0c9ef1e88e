/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: starting, ending. */
#include "core.h"

PyTypeObject *stepaf_py_plan_type;

static bool plan_is_usable(plan_obj *self)
{
    if (!stepaf_py_is_open(self->ctx))
        return false;
    if (!self->handle)
        (void)stepaf_py_refuse(STEPAF_ERR_HANDLE, "the plan is destroyed");
    return self->handle != NULL;
}

/* The arguments of start. */
struct start_args {
    PyObject *push, *wait, *timeout, *skip_lost, *answers, *patience;
};

static bool read_start(PyObject *const *args, Py_ssize_t n_args, PyObject *names,
                       struct start_args *start)
{
    static const char *const known[] = {"push",      "wait",    "timeout",
                                        "skip_lost", "answers", "patience"};
    PyObject **const fields[] = {&start->push,      &start->wait,    &start->timeout,
                                 &start->skip_lost, &start->answers, &start->patience};
    const size_t n_known = sizeof(known) / sizeof(known[0]);
    Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;

    if (n_args > 1) {
        PyErr_SetString(PyExc_TypeError, "start takes one positional argument, push");
        return false;
    }
    if (n_args)
        start->push = args[0];
    for (Py_ssize_t i = 0; i < n_names; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        size_t k = 0;
        while (k < n_known && PyUnicode_CompareWithASCIIString(name, known[k]))
            k++;
        if (k == n_known) {
            PyErr_Format(PyExc_TypeError, "start has no argument %R", name);
            return false;
        }
        *fields[k] = args[n_args + i];
    }
    return true;
}

/* A start that waits for a free slot, in pieces. */
static stepaf_status_t start_waiting(plan_obj *self, stepaf_start_params_t *params,
                                     int64_t timeout_us, stepaf_request_h *request_p)
{
    struct waiter waiter = stepaf_py_waiter(self->ctx, timeout_us);
    stepaf_status_t status;
    int done;

    do {
        params->timeout_us = stepaf_py_piece_us(&waiter);
        UNLOCKED(self->ctx, false, status = LIB(start_with)(self->handle, params, request_p));
        done = stepaf_py_piece_done(&waiter, status);
    } while (done == 0);
    return done < 0 ? STEPAF_INPROGRESS : status;
}

/* How many answers are enough, and how long to wait for all of them; None: as the plan says. */
static bool read_answers(PyObject *answers, PyObject *patience, stepaf_start_params_t *params)
{
    if (answers != Py_None) {
        long n = PyLong_AsLong(answers);
        if (n == -1 && PyErr_Occurred())
            return false;
        params->field_mask |= STEPAF_START_PARAM_ANSWERS;
        params->n_answers = n < 0 || n > INT_MAX ? -1 : (int)n;
    }
    if (patience != Py_None) {
        params->field_mask |= STEPAF_START_PARAM_PATIENCE;
        return stepaf_py_timeout(patience, &params->patience_us);
    }
    return true;
}

static PyObject *started(plan_obj *self, stepaf_status_t status, stepaf_request_h request)
{
    if (status)
        return stepaf_py_raise(status);
    self->last = request;
    return stepaf_py_request(self->ctx, (PyObject *)self, self->pulls, request);
}

static PyObject *start_with(plan_obj *self, const struct start_args *start)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS};
    struct tensors pushes = {.n = 0, .array = pushes.few, .owners = pushes.few_owners};
    int waits = PyObject_IsTrue(start->wait), skips = PyObject_IsTrue(start->skip_lost);
    stepaf_request_h request;
    stepaf_status_t status;
    int64_t timeout_us;

    if (waits < 0 || skips < 0 || !stepaf_py_timeout(start->timeout, &timeout_us))
        return NULL;
    if (!read_answers(start->answers, start->patience, &params))
        return NULL;
    if (start->push != Py_None) {
        if (!stepaf_py_tensors_of(&pushes, start->push, self->keys, self->n_keys))
            return NULL;
        params.field_mask |= STEPAF_START_PARAM_PUSH;
        params.push = pushes.array;
        params.n_push = pushes.n;
    }
    params.flags = (waits ? STEPAF_START_WAIT : 0) | (skips ? STEPAF_START_SKIP_LOST : 0);
    if (waits) {
        params.field_mask |= STEPAF_START_PARAM_TIMEOUT;
        status = start_waiting(self, &params, timeout_us, &request);
    } else {
        BRIEFLY(self->ctx, status = LIB(start_with)(self->handle, &params, &request));
    }
    stepaf_py_tensors_free(&pushes);
    return PyErr_Occurred() ? NULL : started(self, status, request);
}

static PyObject *plan_start(plan_obj *self, PyObject *const *args, Py_ssize_t n_args,
                            PyObject *names)
{
    struct start_args start = {Py_None, Py_False, Py_None, Py_False, Py_None, Py_None};
    stepaf_request_h request;
    stepaf_status_t status;

    if (!plan_is_usable(self))
        return NULL;
    if (n_args || names)
        return read_start(args, n_args, names, &start) ? start_with(self, &start) : NULL;
    BRIEFLY(self->ctx, status = LIB(start)(self->handle, &request));
    return started(self, status, request);
}

/* Return the last request that start_async started in the next slot, if it is still to be waited
 * for. Slots are used round-robin. */
static request_obj *unwaited_next(const plan_obj *self)
{
    int slot = -1;

    if (self->last)
        BRIEFLY(self->ctx, slot = LIB(request_slot)(self->last));

    return slot >= 0 && self->depth ? self->unwaited[((unsigned)slot + 1) % self->depth] : NULL;
}

/* Name what is late: a peer, or else whoever must wait for the request. */
static void *refuse_unwaited(context_obj *ctx, stepaf_request_h request, bool is_timeout)
{
    stepaf_context_h handle = ctx->handle;
    stepaf_status_t status = STEPAF_OK;

    if (!is_timeout)
        return stepaf_py_raise_plain(STEPAF_ERR_WOULD_BLOCK);
    for (int p = 0; p < LIB(n_peers)(handle) && !status; p++)
        BRIEFLY(ctx, status = LIB(wait_peer)(request, LIB(peer_rank)(handle, p), 1));
    if (status == STEPAF_ERR_TIMEOUT)
        return stepaf_py_raise(status);
    return stepaf_py_refuse(STEPAF_ERR_TIMEOUT,
                            "nobody has waited for the request that start_async returned last for "
                            "the plan's next slot");
}

/* _start_kept(push, wait=, ...): as start, but the slot is kept until the request is waited for
 * or freed. */
static PyObject *plan_start_kept(plan_obj *self, PyObject *const *args, Py_ssize_t n_args,
                                 PyObject *names)
{
    struct start_args start = {Py_None, Py_False, Py_None, Py_False, Py_None, Py_None};

    if (!plan_is_usable(self) || !read_start(args, n_args, names, &start))
        return NULL;
    if (self->is_starting) /* another thread does, meanwhile without the interpreter lock */
        return stepaf_py_raise_plain(start.wait == Py_True ? STEPAF_ERR_TIMEOUT
                                                           : STEPAF_ERR_WOULD_BLOCK);
    self->is_starting = true;
    const request_obj *unwaited = unwaited_next(self);
    PyObject *request = unwaited
                            ? refuse_unwaited(self->ctx, unwaited->handle, start.wait == Py_True)
                            : start_with(self, &start);
    if (request)
        stepaf_py_request_keep((request_obj *)request);
    self->is_starting = false;
    return request;
}

static PyObject *plan_start_async(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return stepaf_py_hook("start_async", PyTuple_Pack(3, self, args, kwargs ? kwargs : Py_None));
}

static PyObject *plan_set_answers(plan_obj *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"answers", "patience", NULL};
    PyObject *answers = Py_None, *patience = Py_None;
    stepaf_start_params_t params = {.field_mask = 0};
    stepaf_status_t status;

    if (!stepaf_py_parse(args, kwargs, "|OO", names, &answers, &patience) ||
        !plan_is_usable(self) || !read_answers(answers, patience, &params))
        return NULL;
    BRIEFLY(self->ctx,
            status = LIB(plan_set_answers)(self->handle, params.n_answers, params.patience_us));
    if (status)
        return stepaf_py_raise(status);
    Py_RETURN_NONE;
}

static PyObject *plan_destroy(plan_obj *self, PyObject *unused)
{
    stepaf_status_t status;
    (void)unused;

    if (!self->handle || !self->ctx->handle)
        Py_RETURN_NONE;
    if (!stepaf_py_is_open(self->ctx))
        return NULL;
    BRIEFLY(self->ctx, status = LIB(plan_destroy)(self->handle));
    if (status)
        return stepaf_py_raise(status);
    self->handle = NULL;
    Py_RETURN_NONE;
}

static void plan_dealloc(plan_obj *self)
{
    PyTypeObject *type = Py_TYPE(self);
    context_obj *ctx = self->ctx;

    if (self->handle && ctx->handle && !ctx->closing && ctx->forks == stepaf_py_forks)
        stepaf_py_plan_drop(ctx, self->handle);
    Py_XDECREF(self->pulls);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)ctx);
    Py_DECREF(type);
}

static PyObject *plan_get_depth(plan_obj *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLong(self->handle ? self->depth : 0);
}

static PyObject *plan_get_handle(plan_obj *self, void *closure)
{
    (void)closure;
    return plan_is_usable(self) ? PyLong_FromVoidPtr(self->handle) : NULL;
}

static PyObject *plan_get_context(plan_obj *self, void *closure)
{
    (void)closure;
    Py_INCREF((PyObject *)self->ctx);
    return (PyObject *)self->ctx;
}

static PyObject *plan_get_stream(plan_obj *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(self->flags & STEPAF_PLAN_STREAM);
}

static PyGetSetDef properties[] = {
    {"depth", (getter)plan_get_depth, NULL, "Number of slots: operations in flight.", NULL},
    {"handle", (getter)plan_get_handle, NULL, "The stepaf_plan_h, as an integer.", NULL},
    {"context", (getter)plan_get_context, NULL, "The context.", NULL},
    {"is_stream", (getter)plan_get_stream, NULL, "Whether operations are enqueued on streams.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

enum { METHODS_MAX = 16 };
static PyMethodDef methods[METHODS_MAX] = {
    {"start", METHOD(plan_start), FAST_METHOD,
     "start(push=None, *, wait=False, timeout=None, skip_lost=False, answers=None,\n"
     "      patience=None)\n\n"
     "Start an operation; returns its Request. Does not block, unless wait is true: then it waits\n"
     "for a free slot. push: sources and sizes of this operation instead of the planned ones.\n"
     "answers, patience: as of set_answers, for this operation."},
    {"start_async", METHOD(plan_start_async), METH_VARARGS | METH_KEYWORDS,
     "start_async(push=None, *, timeout=None, skip_lost=False, answers=None, patience=None)\n\n"
     "Start an operation as soon as a slot is free, while other tasks run. Raises TimeoutError,\n"
     "and whatever start does. Its slot is not started again by start_async before the request is\n"
     "waited for, canceled or gone: so tasks can share a plan."},
    {"_start_kept", METHOD(plan_start_kept), FAST_METHOD, NULL},
    {"set_answers", METHOD(plan_set_answers), METH_VARARGS | METH_KEYWORDS,
     "set_answers(answers=None, patience=None)\n\nSo many answers complete an operation of the "
     "plan;\n"
     "None: all. It waits for the others for as many seconds as patience says. See\n"
     "stepaf_answers(7)."},
    {"destroy", (PyCFunction)plan_destroy, METH_NOARGS, "Destroy the plan."},
};

static __attribute__((constructor)) void join_methods(void)
{
    size_t n = 5; /* those above */

    for (const PyMethodDef *method = stepaf_py_plan_stream; method->ml_name && n < METHODS_MAX - 1;
         method++)
        methods[n++] = *method;
}

static PyType_Slot slots[] = {
    {Py_tp_new, stepaf_py_no_new},
    {Py_tp_doc, (void *)"A compiled exchange, made by Context.plan or Context.plan_ffn."},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec stepaf_py_plan_spec = {
    .name = "stepaf._core.Plan",
    .basicsize = sizeof(plan_obj),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
