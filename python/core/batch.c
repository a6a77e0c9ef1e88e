/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: tensors, answers, release. */
#include "core.h"

PyTypeObject *stepaf_py_batch_type;

PyObject *stepaf_py_batch(context_obj *ctx, stepaf_batch_h handle)
{
    struct hold *hold = stepaf_py_hold(HOLD_BATCH, ctx);
    batch_obj *batch = hold ? PyObject_New(batch_obj, stepaf_py_batch_type) : NULL;

    if (!batch) {
        /* The sender is notified, rather than left waiting. */
        (void)LIB(release)(handle);
        if (hold) {
            hold->ended = true;
            stepaf_py_hold_drop(hold);
        }
        return NULL;
    }
    hold->batch = handle;
    batch->hold = hold;
    batch->info = (stepaf_batch_info_t){.size = sizeof(batch->info)};
    stepaf_status_t status = LIB(batch_query)(handle, &batch->info);
    if (status) {
        Py_DECREF((PyObject *)batch);
        return stepaf_py_raise(status);
    }
    return (PyObject *)batch;
}

static void batch_dealloc(batch_obj *self)
{
    PyTypeObject *type = Py_TYPE(self);

    stepaf_py_hold_drop(self->hold);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static bool batch_is_open(const batch_obj *self)
{
    if (!stepaf_py_is_open(self->hold->ctx))
        return false;
    if (self->hold->ended)
        (void)stepaf_py_refuse(STEPAF_ERR_HANDLE, "the batch is released");
    return !self->hold->ended;
}

static Py_ssize_t batch_length(batch_obj *self)
{
    return self->info.n_tensors;
}

static PyObject *batch_item(batch_obj *self, Py_ssize_t index)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_status_t status;

    if (index < 0 || index >= self->info.n_tensors) {
        PyErr_Format(PyExc_IndexError, "tensor %zd of %d", index, self->info.n_tensors);
        return NULL;
    }
    if (!batch_is_open(self))
        return NULL;
    BRIEFLY(self->hold->ctx, status = LIB(batch_tensor)(self->hold->batch, (int)index, &info));
    return status ? stepaf_py_raise(status) : stepaf_py_tensor_from_info(self->hold, &info);
}

static PyObject *batch_get_answers(batch_obj *self, void *closure)
{
    PyObject *answers = batch_is_open(self) ? PyTuple_New(self->info.n_answers) : NULL;
    (void)closure;

    for (int i = 0; answers && i < self->info.n_answers; i++) {
        stepaf_tensor_info_t info = {.size = sizeof(info)};
        stepaf_status_t status;
        BRIEFLY(self->hold->ctx, status = LIB(batch_answer)(self->hold->batch, i, &info));
        PyObject *shape = status ? stepaf_py_raise(status) : PyTuple_New(info.ndim);
        for (int d = 0; shape && d < info.ndim; d++)
            (void)PyTuple_SetItem(shape, d, PyLong_FromLongLong(info.shape[d]));
        PyObject *answer =
            shape ? stepaf_py_hook("answer", Py_BuildValue("(KNsK)", (unsigned long long)info.key,
                                                           shape, LIB(dtype_name)(info.dtype),
                                                           (unsigned long long)info.max_bytes))
                  : NULL;
        if (!answer) {
            Py_DECREF(answers);
            return NULL;
        }
        (void)PyTuple_SetItem(answers, i, answer);
    }
    return answers;
}

static int answer_keys(batch_obj *self, struct typed_key *keys)
{
    int n = self->info.n_answers < STEPAF_MAX_TENSORS ? self->info.n_answers : STEPAF_MAX_TENSORS;

    for (int i = 0; i < n; i++) {
        stepaf_tensor_info_t info = {.size = sizeof(info)};
        stepaf_status_t status;
        BRIEFLY(self->hold->ctx, status = LIB(batch_answer)(self->hold->batch, i, &info));
        if (status) {
            (void)stepaf_py_raise(status);
            return -1;
        }
        stepaf_py_key_of_info(&info, &keys[i]);
    }
    return n;
}

static PyObject *respond(batch_obj *self, PyObject *objects, bool release)
{
    struct typed_key keys[STEPAF_MAX_TENSORS];
    context_obj *ctx = self->hold->ctx;
    struct tensors tensors;
    stepaf_request_h request;
    stepaf_status_t status;

    if (!batch_is_open(self))
        return NULL;
    int n_keys = answer_keys(self, keys);
    if (n_keys < 0 || !stepaf_py_tensors_of(&tensors, objects, keys, n_keys))
        return NULL;
    BRIEFLY(ctx, status = LIB(respond)(self->hold->batch, tensors.array, tensors.n,
                                       release ? STEPAF_RESPOND_RELEASE : 0, &request));
    stepaf_py_tensors_free(&tensors);
    if (status)
        return stepaf_py_raise(status);
    self->hold->ended = release;
    self->responded = true;
    return stepaf_py_request(ctx, NULL, NULL, request);
}

static PyObject *batch_respond(batch_obj *self, PyObject *const *args, Py_ssize_t n_args,
                               PyObject *names)
{
    Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;
    PyObject *tensors = n_args ? args[0] : NULL;
    int release = 1;

    for (Py_ssize_t i = 0; i < n_names; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        if (PyUnicode_CompareWithASCIIString(name, "release") == 0)
            release = PyObject_IsTrue(args[n_args + i]);
        else if (PyUnicode_CompareWithASCIIString(name, "tensors") == 0 && !tensors)
            tensors = args[n_args + i];
        else
            return PyErr_Format(PyExc_TypeError, "respond has no argument %R", name);
    }
    if (release < 0)
        return NULL;
    if (!tensors || n_args > 1)
        return PyErr_Format(PyExc_TypeError, "respond takes one positional argument, tensors");
    return respond(self, tensors, release);
}

static PyObject *batch_respond_tensor(batch_obj *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"index", "tensor", NULL};
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    context_obj *ctx = self->hold->ctx;
    struct tensors tensors;
    stepaf_status_t status;
    PyObject *object;
    int index;

    if (!stepaf_py_parse(args, kwargs, "iO", names, &index, &object) || !batch_is_open(self))
        return NULL;
    if (PyList_Check(object) || PyTuple_Check(object))
        return PyErr_Format(PyExc_TypeError, "respond_tensor takes one tensor");
    BRIEFLY(ctx, status = LIB(batch_answer)(self->hold->batch, index, &info));
    if (status)
        return stepaf_py_raise(status);
    struct typed_key key;
    stepaf_py_key_of_info(&info, &key);
    if (!stepaf_py_tensors_of(&tensors, object, &key, 1))
        return NULL;
    BRIEFLY(ctx, status = LIB(respond_tensor)(self->hold->batch, index, tensors.array));
    stepaf_py_tensors_free(&tensors);
    return stepaf_py_done(status);
}

static PyObject *batch_confirm(batch_obj *self, PyObject *unused)
{
    stepaf_status_t status;
    (void)unused;

    if (!batch_is_open(self))
        return NULL;
    BRIEFLY(self->hold->ctx, status = LIB(confirm)(self->hold->batch));
    return stepaf_py_done(status);
}

static PyObject *batch_release(batch_obj *self, PyObject *unused)
{
    stepaf_status_t status;
    (void)unused;

    if (!batch_is_open(self))
        return NULL;
    BRIEFLY(self->hold->ctx, status = LIB(release)(self->hold->batch));
    if (status)
        return stepaf_py_raise(status);
    self->hold->ended = true;
    Py_RETURN_NONE;
}

static PyObject *batch_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF(self);
    return self;
}

static PyObject *batch_exit(batch_obj *self, PyObject *args)
{
    (void)args;
    if (self->hold->ended || !self->hold->ctx->handle || self->hold->ctx->closing)
        Py_RETURN_NONE;
    return batch_release(self, NULL);
}

static PyObject *batch_get_rank(batch_obj *self, void *closure)
{
    (void)closure;
    return PyLong_FromLong(self->info.attention_rank);
}

static PyObject *batch_get_plan(batch_obj *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLong(self->info.plan);
}

static PyObject *batch_get_sequence(batch_obj *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLong(self->info.sequence);
}

static PyObject *batch_get_released(batch_obj *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(self->hold->ended || !self->hold->ctx->handle);
}

static PyObject *batch_get_context(batch_obj *self, void *closure)
{
    (void)closure;
    Py_INCREF((PyObject *)self->hold->ctx);
    return (PyObject *)self->hold->ctx;
}

static PyGetSetDef properties[] = {
    {"attention_rank", (getter)batch_get_rank, NULL, "The rank that has pushed it.", NULL},
    {"plan", (getter)batch_get_plan, NULL, "Number of the plan at that rank.", NULL},
    {"sequence", (getter)batch_get_sequence, NULL, "Of the operation within its plan; wraps.",
     NULL},
    {"answers", (getter)batch_get_answers, NULL, "The answers that are expected.", NULL},
    {"released", (getter)batch_get_released, NULL, "Whether the batch is released.", NULL},
    {"context", (getter)batch_get_context, NULL, "The context.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"respond", METHOD(batch_respond), FAST_METHOD,
     "respond(tensors, *, release=True)\n\n"
     "Answer, in the order of answers; None is a tensor of no bytes. Returns the Request to wait\n"
     "for before the sources are overwritten. With release the batch goes back with the same\n"
     "message: its tensors, and arrays made of them, are not to be read any more."},
    {"respond_tensor", METHOD(batch_respond_tensor), METH_VARARGS | METH_KEYWORDS,
     "respond_tensor(index, tensor)\n\n"
     "Send one tensor of the answer before the others. respond still takes all, this one as it\n"
     "was here, and returns the Request to wait for before its source is overwritten."},
    {"confirm", (PyCFunction)batch_confirm, METH_NOARGS,
     "Confirm that the push has arrived, for Request.wait_push."},
    {"release", (PyCFunction)batch_release, METH_NOARGS,
     "Give the receive buffers back. Without an answer, the operation ends as canceled."},
    {"__enter__", batch_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)batch_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, stepaf_py_no_new},
    {Py_tp_doc,
     (void *)"An operation as it has arrived: a sequence of the tensors that were pushed.\n\n"
             "It is given back by respond, by release, at the end of a with statement, or else\n"
             "when neither the batch nor any view of its tensors is left."},
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_sq_length, batch_length},
    {Py_sq_item, batch_item},
    {0, NULL},
};

PyType_Spec stepaf_py_batch_spec = {
    .name = "stepaf._core.Batch",
    .basicsize = sizeof(batch_obj),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
