/* SPDX-License-Identifier: Apache-2.0 */
/* Requests. */
#include "core.h"

PyTypeObject *stepaf_py_request_type;

PyObject *stepaf_py_request(context_obj *ctx, PyObject *plan, PyObject *pulls,
                            stepaf_request_h handle)
{
    request_obj *request = PyObject_New(request_obj, stepaf_py_request_type);

    if (!request)
        return NULL;
    Py_INCREF((PyObject *)ctx);
    Py_XINCREF(plan);
    Py_XINCREF(pulls);
    request->ctx = ctx;
    request->plan = plan;
    request->pulls = pulls;
    request->handle = handle;
    request->unwaited = -1;
    return (PyObject *)request;
}

void stepaf_py_request_keep(request_obj *request)
{
    int slot;

    BRIEFLY(request->ctx, slot = LIB(request_slot)(request->handle));
    if (slot < 0 || slot >= STEPAF_MAX_DEPTH)
        return;
    request->unwaited = slot;
    ((plan_obj *)request->plan)->unwaited[slot] = request;
}

/* The slot may be started again as far as this request is concerned. */
static void let_slot_go(request_obj *request)
{
    if (__builtin_expect(request->unwaited < 0, 1))
        return;
    request_obj **place = &((plan_obj *)request->plan)->unwaited[request->unwaited];
    if (*place == request)
        *place = NULL;
    request->unwaited = -1;
}

/* Process the result of a poll of, or a wait for, the request. */
static void look_found(request_obj *request, stepaf_status_t status)
{
    if (status != STEPAF_INPROGRESS && status != STEPAF_ERR_TIMEOUT)
        let_slot_go(request);
}

static void request_dealloc(request_obj *self)
{
    PyTypeObject *type = Py_TYPE(self);
    context_obj *ctx = self->ctx;

    let_slot_go(self);
    Py_XDECREF(self->pulls);
    Py_XDECREF(self->plan);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)ctx);
    Py_DECREF(type);
}

/* Continue a wait after a first poll without a result. */
static stepaf_status_t wait_longer(request_obj *self, int64_t timeout_us, int *done_p)
{
    struct waiter waiter = stepaf_py_waiter(self->ctx, timeout_us);
    stepaf_status_t status;

    do {
        int64_t piece_us = stepaf_py_piece_us(&waiter);
        UNLOCKED(self->ctx, false, status = LIB(wait)(self->handle, piece_us));
        *done_p = stepaf_py_piece_done(&waiter, status);
    } while (*done_p == 0);
    return status;
}

static PyObject *request_wait(request_obj *self, PyObject *const *args, Py_ssize_t n_args,
                              PyObject *names)
{
    Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;
    stepaf_status_t status;
    int64_t timeout_us = -1;
    int done = 1;

    if (n_args + n_names > 1 ||
        (n_names && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "timeout"))) {
        PyErr_SetString(PyExc_TypeError, "wait takes one argument, timeout");
        return NULL;
    }
    if (!stepaf_py_is_open(self->ctx) ||
        (n_args + n_names && !stepaf_py_timeout(args[0], &timeout_us)))
        return NULL;
    BRIEFLY(self->ctx, status = LIB(test)(self->handle));
    if (status == STEPAF_INPROGRESS) {
        if (timeout_us == 0)
            return stepaf_py_raise_plain(STEPAF_ERR_TIMEOUT);
        status = wait_longer(self, timeout_us, &done);
    }
    look_found(self, status);
    if (done < 0)
        return NULL;
    if (status)
        return stepaf_py_raise(status);
    Py_RETURN_NONE;
}

static PyObject *true_unless_in_progress(stepaf_status_t status)
{
    if (status != STEPAF_OK && status != STEPAF_INPROGRESS)
        return stepaf_py_raise(status);
    return PyBool_FromLong(status == STEPAF_OK);
}

static PyObject *request_test(request_obj *self, PyObject *unused)
{
    stepaf_status_t status;
    (void)unused;

    if (!stepaf_py_is_open(self->ctx))
        return NULL;
    BRIEFLY(self->ctx, status = LIB(test)(self->handle));
    look_found(self, status);
    return true_unless_in_progress(status);
}

/* For operations of the host only: canceling any other is a mistake. */
static bool can_be_canceled(const request_obj *self)
{
    return self->pulls && !(self->plan && (((plan_obj *)self->plan)->flags & STEPAF_PLAN_STREAM));
}

static PyObject *request_cancel(request_obj *self, PyObject *unused)
{
    stepaf_status_t status;
    (void)unused;

    if (!stepaf_py_is_open(self->ctx))
        return NULL;
    BRIEFLY(self->ctx, status = LIB(cancel)(self->handle));
    if (status == STEPAF_ERR_STATE && can_be_canceled(self)) /* it was complete before */
        Py_RETURN_FALSE;
    if (status)
        return stepaf_py_raise(status);
    let_slot_go(self);
    Py_RETURN_TRUE;
}

static PyObject *request_peer(request_obj *self, PyObject *rank)
{
    stepaf_status_t status;
    int number;

    if (!stepaf_py_number(rank, &number) || !stepaf_py_is_open(self->ctx))
        return NULL;
    BRIEFLY(self->ctx, status = LIB(request_peer)(self->handle, number));
    return true_unless_in_progress(status);
}

static PyObject *request_answers(request_obj *self, PyObject *unused)
{
    PyObject *list = NULL;
    stepaf_status_t status;
    (void)unused;

    if (!stepaf_py_is_open(self->ctx))
        return NULL;
    int n = LIB(n_peers)(self->ctx->handle);
    size_t n_words = n > 0 ? ((size_t)n + 63) / 64 : 1;
    uint64_t *mask = PyMem_Calloc(n_words, sizeof(*mask));
    if (!mask)
        return PyErr_NoMemory();
    BRIEFLY(self->ctx, status = LIB(request_answers)(self->handle, mask, (int)n_words));
    if (!status)
        list = PyTuple_New(n);
    for (int p = 0; list && p < n; p++)
        PyTuple_SetItem(list, p, PyBool_FromLong(mask[p / 64] >> p % 64 & 1));
    PyMem_Free(mask);
    return status ? stepaf_py_raise(status) : list;
}

/* Return an awaitable for one part of an operation. */
typedef stepaf_status_t wait_part_t(stepaf_request_h request, int index, int64_t timeout_us);

static stepaf_status_t wait_rest(stepaf_request_h request, int index, int64_t timeout_us)
{
    (void)index;
    return LIB(wait_rest)(request, timeout_us);
}

static PyObject *wait_part(request_obj *self, wait_part_t *wait, int index, PyObject *timeout)
{
    stepaf_status_t status;
    int64_t timeout_us;
    int done;

    if (!stepaf_py_is_open(self->ctx) || !stepaf_py_timeout(timeout, &timeout_us))
        return NULL;
    struct waiter waiter = stepaf_py_waiter(self->ctx, timeout_us);
    do {
        int64_t piece_us = timeout_us ? stepaf_py_piece_us(&waiter) : 0;
        UNLOCKED(self->ctx, false, status = wait(self->handle, index, piece_us));
        done = stepaf_py_piece_done(&waiter, status);
    } while (done == 0);
    if (done < 0)
        return NULL;
    if (status == STEPAF_ERR_TIMEOUT && timeout_us == 0)
        return stepaf_py_raise_plain(status);
    if (status)
        return stepaf_py_raise(status);
    Py_RETURN_NONE;
}

static PyObject *request_wait_peer(request_obj *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"ffn_rank", "timeout", NULL};
    PyObject *timeout = Py_None;
    int rank;

    if (!stepaf_py_parse(args, kwargs, "i|O", names, &rank, &timeout))
        return NULL;
    return wait_part(self, LIB(wait_peer), rank, timeout);
}

static PyObject *request_wait_tensor(request_obj *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"index", "timeout", NULL};
    PyObject *timeout = Py_None;
    int index;

    if (!stepaf_py_parse(args, kwargs, "i|O", names, &index, &timeout))
        return NULL;
    return wait_part(self, LIB(wait_tensor), index, timeout);
}

static PyObject *request_wait_push(request_obj *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"ffn_rank", "timeout", NULL};
    PyObject *timeout = Py_None;
    int rank;

    if (!stepaf_py_parse(args, kwargs, "i|O", names, &rank, &timeout))
        return NULL;
    return wait_part(self, LIB(wait_push), rank, timeout);
}

static PyObject *request_wait_rest(request_obj *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"timeout", NULL};
    PyObject *timeout = Py_None;

    if (!stepaf_py_parse(args, kwargs, "|O", names, &timeout))
        return NULL;
    return wait_part(self, wait_rest, 0, timeout);
}

static PyObject *request_tensor(request_obj *self, PyObject *index)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_status_t status;
    int number;

    if (!stepaf_py_number(index, &number) || !stepaf_py_is_open(self->ctx))
        return NULL;
    BRIEFLY(self->ctx, status = LIB(request_tensor)(self->handle, number, &info));
    if (status == STEPAF_INPROGRESS)
        Py_RETURN_NONE;
    if (status)
        return stepaf_py_raise(status);
    PyObject *owner = self->pulls ? PyTuple_GetItem(self->pulls, number) : NULL;
    if (!owner || owner == Py_None) {
        PyErr_Clear();
        return stepaf_py_refuse(STEPAF_ERR_INVALID, "nothing was to be received there");
    }
    return stepaf_py_tensor_from_info(((tensor_obj *)owner)->hold, &info);
}

static PyObject *request_timeline(request_obj *self, PyObject *rank)
{
    stepaf_timeline_t line = {.size = sizeof(line)};
    stepaf_status_t status;
    int number;

    if (!stepaf_py_number(rank, &number) || !stepaf_py_is_open(self->ctx))
        return NULL;
    BRIEFLY(self->ctx, status = LIB(timeline_query)(self->handle, number, &line));
    if (status)
        return stepaf_py_raise(status);
    return stepaf_py_hook("timeline",
                          Py_BuildValue("(LLLLL)", (long long)line.start_ns,
                                        (long long)line.notified_ns, (long long)line.answered_ns,
                                        (long long)line.ffn_queue_ns, (long long)line.ffn_work_ns));
}

static PyObject *request_get_sent(request_obj *self, void *closure)
{
    stepaf_status_t status;
    (void)closure;

    if (!stepaf_py_is_open(self->ctx))
        return NULL;
    BRIEFLY(self->ctx, status = LIB(request_sent)(self->handle));
    return true_unless_in_progress(status);
}

static PyObject *request_get_slot(request_obj *self, void *closure)
{
    int slot;
    (void)closure;

    if (!stepaf_py_is_open(self->ctx))
        return NULL;
    BRIEFLY(self->ctx, slot = LIB(request_slot)(self->handle));
    return PyLong_FromLong(slot);
}

static PyObject *request_get_handle(request_obj *self, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(self->handle);
}

static PyObject *request_get_context(request_obj *self, void *closure)
{
    (void)closure;
    Py_INCREF((PyObject *)self->ctx);
    return (PyObject *)self->ctx;
}

static PyObject *request_await(PyObject *self)
{
    return stepaf_py_hook("await", PyTuple_Pack(1, self));
}

/* Collect handles of requests of one context; None is skipped. */
static stepaf_request_h *read_requests(PyObject *list, Py_ssize_t n, context_obj **ctx_p)
{
    stepaf_request_h *handles = PyMem_Calloc((size_t)n + 1, sizeof(stepaf_request_h));

    *ctx_p = NULL;
    if (!handles)
        (void)PyErr_NoMemory();
    for (Py_ssize_t i = 0; handles && i < n; i++) {
        PyObject *item = PyList_GetItem(list, i);
        if (item == Py_None)
            continue;
        if (!PyObject_TypeCheck(item, stepaf_py_request_type)) {
            PyErr_Format(PyExc_TypeError, "%R is not a Request", item);
            PyMem_Free(handles);
            return NULL;
        }
        handles[i] = ((request_obj *)item)->handle;
        *ctx_p = ((request_obj *)item)->ctx;
    }
    return handles;
}

PyObject *stepaf_py_wait_any(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"requests", "timeout", NULL};
    PyObject *requests, *timeout = Py_None;
    int64_t timeout_us;
    context_obj *ctx;
    (void)module;

    if (!stepaf_py_parse(args, kwargs, "O|O", names, &requests, &timeout) ||
        !stepaf_py_timeout(timeout, &timeout_us))
        return NULL;
    PyObject *list = PySequence_List(requests);
    if (!list)
        return NULL;
    Py_ssize_t n = PyList_Size(list);
    stepaf_request_h *handles = read_requests(list, n, &ctx);
    stepaf_status_t status = STEPAF_ERR_STATE;
    int index = -1, done = 1;
    if (handles && !ctx) {
        (void)stepaf_py_refuse(STEPAF_ERR_STATE, "there is no request to wait for");
        done = -1;
    } else if (handles && stepaf_py_is_open(ctx)) {
        struct waiter waiter = stepaf_py_waiter(ctx, timeout_us);
        do {
            int64_t piece_us = timeout_us ? stepaf_py_piece_us(&waiter) : 0;
            index = -1;
            UNLOCKED(ctx, false, status = LIB(wait_any)(handles, (int)n, piece_us, &index));
            done = index >= 0 ? 1 : stepaf_py_piece_done(&waiter, status);
        } while (done == 0);
    } else {
        done = -1;
    }
    if (done > 0 && index >= 0 && index < n)
        look_found((request_obj *)PyList_GetItem(list, index), status);
    PyMem_Free(handles);
    Py_DECREF(list);
    if (done < 0)
        return NULL;
    if (status == STEPAF_ERR_TIMEOUT && timeout_us == 0 && index < 0)
        return stepaf_py_raise_plain(status);
    return status ? stepaf_py_raise(status) : PyLong_FromLong(index);
}

static PyGetSetDef properties[] = {
    {"sent", (getter)request_get_sent, NULL, "Whether the sources may be overwritten.", NULL},
    {"slot", (getter)request_get_slot, NULL, "The slot of the operation; -1: none any more.", NULL},
    {"handle", (getter)request_get_handle, NULL, "The stepaf_request_h, as an integer.", NULL},
    {"context", (getter)request_get_context, NULL, "The context.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"wait", METHOD(request_wait), FAST_METHOD,
     "wait(timeout=None)\n\nWait until the request is complete. Raises what has become of it, or\n"
     "TimeoutError: then wait again, or cancel."},
    {"test", (PyCFunction)request_test, METH_NOARGS,
     "Whether the request is complete. Once it is, it ends as after wait. Does not block."},
    {"cancel", (PyCFunction)request_cancel, METH_NOARGS,
     "Cancel the operation: True, and wait then raises CanceledError. False if it was complete "
     "before;\nwait then has its result."},
    {"peer", (PyCFunction)request_peer, METH_O, "Whether this FFN rank has answered."},
    {"answers", (PyCFunction)request_answers, METH_NOARGS,
     "Whose tensors are valid: a bool for each peer, in the order of the plan's destinations."},
    {"wait_peer", METHOD(request_wait_peer), METH_VARARGS | METH_KEYWORDS,
     "wait_peer(ffn_rank, timeout=None)\n\nWait until this FFN rank has answered. The request goes "
     "on."},
    {"wait_tensor", METHOD(request_wait_tensor), METH_VARARGS | METH_KEYWORDS,
     "wait_tensor(index, timeout=None)\n\nWait until pull tensor number index has arrived."},
    {"wait_push", METHOD(request_wait_push), METH_VARARGS | METH_KEYWORDS,
     "wait_push(ffn_rank, timeout=None)\n\nWait until this FFN rank has confirmed that the push "
     "has\narrived (Batch.confirm), or has sent a tensor of its answer."},
    {"wait_rest", METHOD(request_wait_rest), METH_VARARGS | METH_KEYWORDS,
     "wait_rest(timeout=None)\n\nWait until nothing is to come to the slot any more: see "
     "stepaf_answers(7)."},
    {"tensor", (PyCFunction)request_tensor, METH_O,
     "Pull tensor number i (peer by peer) as it has arrived, or None if it has not yet."},
    {"timeline", (PyCFunction)request_timeline, METH_O,
     "Where the time of the operation went at this FFN rank."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, stepaf_py_no_new},
    {Py_tp_doc, (void *)"An operation, or an answer, that is under way. Can be awaited."},
    {Py_tp_dealloc, request_dealloc},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_am_await, request_await},
    {0, NULL},
};

PyType_Spec stepaf_py_request_spec = {
    .name = "stepaf._core.Request",
    .basicsize = sizeof(request_obj),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
