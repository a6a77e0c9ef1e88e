/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on streams. */
#include "core.h"

static bool is_usable(plan_obj *self)
{
    if (!stepaf_py_is_open(self->ctx))
        return false;
    if (!self->handle)
        (void)stepaf_py_refuse(STEPAF_ERR_HANDLE, "the plan is destroyed");
    return self->handle != NULL;
}

/* An integer is a stream; the Python part resolves anything else: None is the current one. */
static bool read_stream(PyObject *object, stepaf_stream_t *stream_p)
{
    PyObject *number;

    if (PyLong_Check(object)) {
        number = object;
        Py_INCREF(number);
    } else {
        number = stepaf_py_hook("stream", PyTuple_Pack(1, object));
    }
    if (!number)
        return false;
    *stream_p = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    return !PyErr_Occurred();
}

static PyObject *start_on_stream(plan_obj *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"stream", "push", "request", NULL};
    PyObject *stream_arg = Py_None, *push = Py_None;
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_PUSH};
    struct tensors pushes = {.n = 0, .array = pushes.few, .owners = pushes.few_owners};
    int wants_request = 0;
    stepaf_request_h request = NULL;
    stepaf_stream_t stream;
    stepaf_status_t status;

    if (!stepaf_py_parse(args, kwargs, "|OOp", names, &stream_arg, &push, &wants_request) ||
        !is_usable(self) || !read_stream(stream_arg, &stream) ||
        (push != Py_None && !stepaf_py_tensors_of(&pushes, push, self->keys, self->n_keys)))
        return NULL;
    params.push = pushes.array;
    params.n_push = pushes.n;
    UNLOCKED(self->ctx, true,
             status = LIB(start_on_stream)(self->handle, push == Py_None ? NULL : &params, stream,
                                           wants_request ? &request : NULL));
    stepaf_py_tensors_free(&pushes);
    if (status)
        return stepaf_py_raise(status);
    if (wants_request)
        return stepaf_py_request(self->ctx, (PyObject *)self, self->pulls, request);
    Py_RETURN_NONE;
}

/* The two calls that only enqueue a wait. */
static PyObject *enqueue(plan_obj *self, PyObject *args, PyObject *kwargs,
                         stepaf_status_t (*call)(stepaf_plan_h plan, stepaf_stream_t stream))
{
    static const char *const names[] = {"stream", NULL};
    PyObject *stream_arg = Py_None;
    stepaf_stream_t stream;
    stepaf_status_t status;

    if (!stepaf_py_parse(args, kwargs, "|O", names, &stream_arg) || !is_usable(self) ||
        !read_stream(stream_arg, &stream))
        return NULL;
    UNLOCKED(self->ctx, true, status = call(self->handle, stream));
    if (status)
        return stepaf_py_raise(status);
    Py_RETURN_NONE;
}

static PyObject *wait_on_stream(plan_obj *self, PyObject *args, PyObject *kwargs)
{
    return enqueue(self, args, kwargs, stepaf_py_lib.wait_on_stream_);
}

static PyObject *recv_on_stream(plan_obj *self, PyObject *args, PyObject *kwargs)
{
    return enqueue(self, args, kwargs, stepaf_py_lib.recv_on_stream_);
}

static PyObject *respond_on_stream(plan_obj *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"stream", "tensors", NULL};
    PyObject *stream_arg = Py_None, *objects = Py_None;
    struct tensors tensors = {.n = 0, .array = tensors.few, .owners = tensors.few_owners};
    stepaf_stream_t stream;
    stepaf_status_t status;

    if (!stepaf_py_parse(args, kwargs, "|OO", names, &stream_arg, &objects) || !is_usable(self) ||
        !read_stream(stream_arg, &stream) ||
        (objects != Py_None && !stepaf_py_tensors_of(&tensors, objects, self->keys, self->n_keys)))
        return NULL;
    UNLOCKED(self->ctx, true,
             status = LIB(respond_on_stream)(self->handle,
                                             objects == Py_None ? NULL : tensors.array, stream));
    stepaf_py_tensors_free(&tensors);
    if (status)
        return stepaf_py_raise(status);
    Py_RETURN_NONE;
}

static PyObject *plan_status(plan_obj *self, PyObject *unused)
{
    stepaf_status_t status;
    (void)unused;

    if (!is_usable(self))
        return NULL;
    BRIEFLY(self->ctx, status = LIB(plan_status)(self->handle));
    if (status)
        return stepaf_py_raise(status);
    Py_RETURN_NONE;
}

/* Make a view of memory that the context keeps as long as the plan, or, with an epoch, until the
 * next commit. */
static PyObject *view_of(plan_obj *self, const stepaf_tensor_info_t *info, uint32_t epoch)
{
    struct hold *hold = stepaf_py_hold(HOLD_PLAN, self->ctx);

    if (!hold)
        return NULL;
    hold->epoch = epoch;
    hold->object = (PyObject *)self;
    Py_INCREF((PyObject *)self);
    PyObject *tensor = stepaf_py_tensor_from_info(hold, info);
    stepaf_py_hold_drop(hold);
    return tensor;
}

/* Return the owner of what an attention rank receives: its destination; otherwise NULL. */
static struct hold *pull_hold(const plan_obj *self, int peer, int index)
{
    const int n_peers = LIB(n_peers)(self->ctx->handle);
    const Py_ssize_t n = self->pulls && n_peers > 0 ? PyTuple_Size(self->pulls) / n_peers : 0;

    if (peer < 0 || peer >= n_peers || index < 0 || index >= n)
        return NULL;
    PyObject *owner = PyTuple_GetItem(self->pulls, peer * n + index);
    return owner && owner != Py_None ? ((tensor_obj *)owner)->hold : NULL;
}

static PyObject *plan_tensor(plan_obj *self, PyObject *args)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    unsigned slot;
    int peer, index;
    stepaf_status_t status;

    if (!PyArg_ParseTuple(args, "Iii", &slot, &peer, &index) || !is_usable(self))
        return NULL;
    BRIEFLY(self->ctx, status = LIB(plan_tensor)(self->handle, slot, peer, index, &info));
    if (status)
        return stepaf_py_raise(status);
    struct hold *hold = pull_hold(self, peer, index);
    return hold ? stepaf_py_tensor_from_info(hold, &info) : view_of(self, &info, 0);
}

/* 32-bit words in GPU memory. */
static PyObject *words(plan_obj *self, const void *data, int n)
{
    stepaf_tensor_info_t info = {.data = (void *)(uintptr_t)data,
                                 .bytes = (size_t)n * sizeof(uint32_t),
                                 .dtype = STEPAF_I32,
                                 .ndim = 1,
                                 .shape = {n},
                                 .mem_kind = STEPAF_MEM_CUDA};
    if (!data)
        Py_RETURN_NONE;
    return view_of(self, &info, LIB(epoch)(self->ctx->handle));
}

static PyObject *plan_bytes(plan_obj *self, PyObject *args)
{
    unsigned slot;
    int n;

    if (!PyArg_ParseTuple(args, "Ii", &slot, &n) || !is_usable(self))
        return NULL;
    return words(self, LIB(plan_bytes)(self->handle, slot), n);
}

static PyObject *plan_answers(plan_obj *self, PyObject *args)
{
    unsigned slot;

    if (!PyArg_ParseTuple(args, "I", &slot) || !is_usable(self))
        return NULL;
    return words(self, LIB(plan_answers)(self->handle, slot),
                 sizeof(stepaf_answers_t) / sizeof(uint32_t));
}

static PyObject *plan_origin(plan_obj *self, PyObject *unused)
{
    (void)unused;
    return is_usable(self) ? words(self, LIB(plan_origin)(self->handle), 2) : NULL;
}

PyMethodDef stepaf_py_plan_stream[] = {
    {"start_on_stream", METHOD(start_on_stream), METH_VARARGS | METH_KEYWORDS,
     "start_on_stream(stream=None, push=None, request=False)\n\n"
     "Enqueue the pushes of an operation. push: tensors, or sizes of the planned ones, in bytes.\n"
     "Returns a Request if one is asked for."},
    {"wait_on_stream", METHOD(wait_on_stream), METH_VARARGS | METH_KEYWORDS,
     "wait_on_stream(stream=None)\n\nMake the stream wait for the oldest operation."},
    {"recv_on_stream", METHOD(recv_on_stream), METH_VARARGS | METH_KEYWORDS,
     "recv_on_stream(stream=None)\n\nMake the stream wait for the next batch."},
    {"respond_on_stream", METHOD(respond_on_stream), METH_VARARGS | METH_KEYWORDS,
     "respond_on_stream(stream=None, tensors=None)\n\n"
     "Enqueue the answers to the oldest batch, and its release."},
    {"status", (PyCFunction)plan_status, METH_NOARGS, "Raise what has failed, if anything has."},
    {"tensor", (PyCFunction)plan_tensor, METH_VARARGS,
     "tensor(slot, peer, index)\n\nA tensor that this rank receives; after the commit."},
    {"arrived_bytes", (PyCFunction)plan_bytes, METH_VARARGS,
     "arrived_bytes(slot, n)\n\nThe GPU's n counts of bytes that have arrived in a slot; or None."},
    {"answers", (PyCFunction)plan_answers, METH_VARARGS,
     "answers(slot)\n\nThe GPU's words for whose answers are there, two each: a mask of the peers' "
     "bits,\n"
     "those that are given up, and how many answers have come late; or None if all are waited "
     "for."},
    {"origin", (PyCFunction)plan_origin, METH_NOARGS,
     "The GPU's words for where the last batch came from, peer and slot; or None."},
    {NULL, NULL, 0, NULL},
};
