/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: the memory that they allocate, and foreign memory that is registered. */
#include "core.h"

PyObject *stepaf_py_done_long(const context_obj *ctx, stepaf_status_t status)
{
    if ((status == STEPAF_ERR_HANDLE || status == STEPAF_ERR_CANCELED) && ctx->closing)
        return stepaf_py_refuse(STEPAF_ERR_CANCELED, "the context was closed during the wait");
    return stepaf_py_done(status);
}

PyObject *stepaf_py_done(stepaf_status_t status)
{
    if (status)
        return stepaf_py_raise(status);
    Py_RETURN_NONE;
}

int stepaf_py_shape(PyObject *shape, int64_t *shape_p)
{
    Py_ssize_t n = PySequence_Size(shape);

    if (n > STEPAF_MAX_DIMS) {
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "a shape of %zd dimensions", n);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(shape, i);
        PyObject *size = item ? PyNumber_Index(item) : NULL;
        shape_p[i] = size ? PyLong_AsLongLong(size) : -1;
        Py_XDECREF(size);
        Py_XDECREF(item);
        if (shape_p[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)n;
}

bool stepaf_py_bytes(size_t item, int ndim, const int64_t *shape, size_t *bytes_p)
{
    size_t bytes = item;

    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) {
            (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "a shape with a size of %lld",
                                   (long long)shape[i]);
            return false;
        }
        if (__builtin_mul_overflow(bytes, (size_t)shape[i], &bytes) || bytes > PTRDIFF_MAX) {
            (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "a shape of more bytes than there can be");
            return false;
        }
    }
    *bytes_p = bytes;
    return true;
}

static PyObject *context_alloc(context_obj *self, PyObject *args)
{
    int dtype, mem_kind, ndim;
    int64_t shape[STEPAF_MAX_DIMS];
    PyObject *sizes;
    stepaf_status_t status;
    size_t bytes;
    void *base;

    if (!PyArg_ParseTuple(args, "iOi", &dtype, &sizes, &mem_kind) || !stepaf_py_is_open(self))
        return NULL;
    ndim = stepaf_py_shape(sizes, shape);
    if (ndim >= 0 && !stepaf_py_bytes(LIB(dtype_bytes)((stepaf_dtype_t)dtype), ndim, shape, &bytes))
        return NULL;
    if (ndim >= 0 && !bytes)
        return stepaf_py_refuse(STEPAF_ERR_INVALID, "a size of 0: a tensor of no bytes takes no "
                                                    "memory, and None stands for it");
    struct hold *hold = ndim < 0 ? NULL : stepaf_py_hold(HOLD_BLOCK, self);
    if (!hold)
        return NULL;
    UNLOCKED(self, true,
             status = LIB(alloc)(self->handle, bytes, (stepaf_mem_kind_t)mem_kind, &base));
    if (status) {
        hold->ended = true;
        stepaf_py_hold_drop(hold);
        return stepaf_py_raise(status);
    }
    hold->base = base;
    hold->bytes = bytes;
    tensor_obj *tensor =
        stepaf_py_tensor(hold, base, bytes, dtype, ndim, shape, (stepaf_mem_kind_t)mem_kind);
    stepaf_py_hold_drop(hold);
    return (PyObject *)tensor;
}

static PyObject *context_free(context_obj *self, PyObject *tensor)
{
    struct hold *hold;
    stepaf_status_t status;

    if (!stepaf_py_is_open(self))
        return NULL;
    if (!PyObject_TypeCheck(tensor, stepaf_py_tensor_type))
        return PyErr_Format(PyExc_TypeError, "only what alloc has returned can be freed");
    stepaf_py_plans_retry(self);
    hold = ((tensor_obj *)tensor)->hold;
    if (!stepaf_py_hold_check(hold))
        return NULL;
    if (hold->kind != HOLD_BLOCK || hold->ctx != self)
        return stepaf_py_refuse(STEPAF_ERR_UNREGISTERED,
                                "the tensor is not in memory that this context has allocated");
    if (hold->exports) {
        PyErr_Format(PyExc_BufferError,
                     "the memory still has %u readers: memoryviews, arrays or "
                     "torch tensors",
                     hold->exports);
        return NULL;
    }
    hold->ended = true; /* no thread may begin to use it meanwhile */
    UNLOCKED(self, true, status = LIB(free)(self->handle, hold->base));
    hold->ended = !status;
    return stepaf_py_done(status);
}

static PyObject *context_register(context_obj *self, PyObject *object)
{
    stepaf_status_t status;
    tensor_obj *tensor = stepaf_py_is_open(self) ? stepaf_py_acquire(object) : NULL;

    if (!tensor)
        return NULL;
    if (!tensor->bytes) {
        Py_DECREF((PyObject *)tensor);
        return stepaf_py_refuse(STEPAF_ERR_INVALID, "a tensor of no bytes needs no registration");
    }
    UNLOCKED(self, true, status = LIB(register)(self->handle, tensor->data, tensor->bytes));
    if (status) {
        Py_DECREF((PyObject *)tensor);
        return stepaf_py_raise(status);
    }
    if (!self->handle) { /* another thread has closed the context: nothing is registered any more */
        Py_DECREF((PyObject *)tensor);
        return stepaf_py_done_long(self, STEPAF_ERR_HANDLE);
    }
    /* A hold of its own, so that the memory stays as long as it is registered. */
    struct hold *hold = stepaf_py_hold(HOLD_FOREIGN, NULL);
    if (!hold) {
        UNLOCKED(self, true, (void)LIB(deregister)(self->handle, tensor->data));
        Py_DECREF((PyObject *)tensor);
        return NULL;
    }
    hold->base = tensor->data;
    hold->bytes = tensor->bytes;
    hold->object = (PyObject *)tensor;
    hold->next = self->registered;
    self->registered = hold;
    Py_INCREF((PyObject *)tensor);
    return (PyObject *)tensor;
}

static PyObject *context_deregister(context_obj *self, PyObject *object)
{
    stepaf_status_t status;
    tensor_obj *tensor = stepaf_py_is_open(self) ? stepaf_py_acquire(object) : NULL;

    if (!tensor)
        return NULL;
    void *base = tensor->data;
    const bool is_ours = tensor->hold->kind == HOLD_BLOCK;
    Py_DECREF((PyObject *)tensor);
    UNLOCKED(self, true, status = LIB(deregister)(self->handle, base));
    if (status == STEPAF_ERR_UNREGISTERED)
        return stepaf_py_refuse(status, is_ours ? "memory of alloc ends with free"
                                                : "no registration begins where the tensor does: "
                                                  "deregister takes what register has returned");
    if (status)
        return stepaf_py_raise(status);
    for (struct hold **link = &self->registered; *link; link = &(*link)->next) {
        struct hold *hold = *link;
        if (hold->base != base)
            continue;
        *link = hold->next;
        stepaf_py_hold_drop(hold);
        break;
    }
    Py_RETURN_NONE;
}

PyMethodDef stepaf_py_context_memory[] = {
    {"_alloc", (PyCFunction)context_alloc, METH_VARARGS, NULL},
    {"free", (PyCFunction)context_free, METH_O,
     "Free the whole allocation in which the tensor is, also if that is a view of a part."},
    {"register", (PyCFunction)context_register, METH_O,
     "Register a tensor's memory; returns a Tensor of it. The object is kept until deregister or "
     "close,\nbut nobody may take its memory from under it."},
    {"deregister", (PyCFunction)context_deregister, METH_O,
     "End the registration of what register has returned, or of the same tensor."},
    {NULL, NULL, 0, NULL},
};
