/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: keys, memory, commit. */
#include "core.h"

static PyObject *none_or_raise(stepaf_status_t status)
{
    if (status)
        return stepaf_py_raise(status);
    Py_RETURN_NONE;
}

/* shape: a sequence of at most STEPAF_MAX_DIMS sizes; the number of them, or -1. */
static int read_shape(PyObject *shape, int64_t *shape_p)
{
    Py_ssize_t n = PySequence_Size(shape);

    if (n > STEPAF_MAX_DIMS) {
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "a shape of %zd dimensions", n);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(shape, i);
        shape_p[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (shape_p[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)n;
}

static PyObject *context_declare(context_obj *self, PyObject *args)
{
    unsigned long long key, max_bytes;
    int direction, dtype, mem_kind;
    unsigned depth;
    PyObject *shape;
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DTYPE | STEPAF_KEY_MEM_KIND};

    if (!PyArg_ParseTuple(args, "KiKiOIi", &key, &direction, &max_bytes, &dtype, &shape, &depth,
                          &mem_kind) ||
        !stepaf_py_is_open(self))
        return NULL;
    params.dtype = (stepaf_dtype_t)dtype;
    params.mem_kind = (stepaf_mem_kind_t)mem_kind;
    params.depth = depth;
    params.field_mask |= depth ? STEPAF_KEY_DEPTH : 0;
    if (shape != Py_None) {
        params.ndim = read_shape(shape, params.shape);
        params.field_mask |= STEPAF_KEY_SHAPE;
        if (params.ndim < 0)
            return NULL;
    }
    stepaf_status_t status;
    BRIEFLY(self, status = LIB(key_declare)(self->handle, key, (stepaf_direction_t)direction,
                                            max_bytes, &params));
    return none_or_raise(status);
}

static PyObject *context_withdraw(context_obj *self, PyObject *args)
{
    unsigned long long key;
    stepaf_status_t status;

    if (!PyArg_ParseTuple(args, "K", &key) || !stepaf_py_is_open(self))
        return NULL;
    BRIEFLY(self, status = LIB(key_withdraw)(self->handle, key));
    return none_or_raise(status);
}

static PyObject *context_set_recv(context_obj *self, PyObject *args)
{
    unsigned long long key;
    PyObject *object, *ranks;
    int n_ranks = 0, *array = NULL;
    stepaf_status_t status = STEPAF_OK;

    if (!PyArg_ParseTuple(args, "KOO", &key, &object, &ranks) || !stepaf_py_is_open(self))
        return NULL;
    if (ranks != Py_None) {
        n_ranks = (int)PySequence_Size(ranks);
        array = n_ranks < 0 ? NULL : PyMem_Malloc(sizeof(int) * ((size_t)n_ranks + 1));
        if (!array)
            return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    for (int i = 0; i < n_ranks; i++) {
        PyObject *rank = PySequence_GetItem(ranks, i);
        array[i] = rank ? (int)PyLong_AsLong(rank) : -1;
        Py_XDECREF(rank);
    }
    tensor_obj *tensor = PyErr_Occurred() ? NULL : stepaf_py_acquire(object);
    if (tensor)
        BRIEFLY(self, status = LIB(key_set_recv)(self->handle, key, tensor->data, tensor->bytes,
                                                 array, n_ranks));
    PyMem_Free(array);
    if (!tensor)
        return NULL;
    Py_DECREF((PyObject *)tensor);
    return none_or_raise(status);
}

static PyObject *context_alloc(context_obj *self, PyObject *args)
{
    unsigned long long bytes;
    int dtype, mem_kind, ndim;
    int64_t shape[STEPAF_MAX_DIMS];
    PyObject *sizes;
    stepaf_status_t status;
    void *base;

    if (!PyArg_ParseTuple(args, "KiOi", &bytes, &dtype, &sizes, &mem_kind) ||
        !stepaf_py_is_open(self))
        return NULL;
    ndim = read_shape(sizes, shape);
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
    hold->ended = true; /* nobody shall begin to use it meanwhile */
    UNLOCKED(self, true, status = LIB(free)(self->handle, hold->base));
    hold->ended = !status;
    return none_or_raise(status);
}

static PyObject *context_register(context_obj *self, PyObject *object)
{
    stepaf_status_t status;
    tensor_obj *tensor = stepaf_py_is_open(self) ? stepaf_py_acquire(object) : NULL;

    if (!tensor)
        return NULL;
    UNLOCKED(self, true, status = LIB(register)(self->handle, tensor->data, tensor->bytes));
    if (status) {
        Py_DECREF((PyObject *)tensor);
        return stepaf_py_raise(status);
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
    Py_DECREF((PyObject *)tensor);
    UNLOCKED(self, true, status = LIB(deregister)(self->handle, base));
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

static PyObject *context_commit(context_obj *self, PyObject *unused)
{
    stepaf_status_t status;
    (void)unused;

    if (!stepaf_py_is_open(self))
        return NULL;
    stepaf_py_sweep(self);
    UNLOCKED(self, true, status = LIB(commit)(self->handle));
    return none_or_raise(status);
}

static PyObject *context_barrier(context_obj *self, PyObject *args)
{
    PyObject *timeout = Py_None;
    int64_t timeout_us;
    int group = STEPAF_GROUP_WORLD;
    stepaf_status_t status;

    if (!PyArg_ParseTuple(args, "|iO", &group, &timeout) ||
        !stepaf_py_timeout(timeout, &timeout_us) || !stepaf_py_is_open(self))
        return NULL;
    UNLOCKED(self, true, status = LIB(barrier)(self->handle, (stepaf_group_t)group, timeout_us));
    return none_or_raise(status);
}

PyMethodDef stepaf_py_context_setup[] = {
    {"_declare", (PyCFunction)context_declare, METH_VARARGS, NULL},
    {"_withdraw", (PyCFunction)context_withdraw, METH_VARARGS, NULL},
    {"_set_recv", (PyCFunction)context_set_recv, METH_VARARGS, NULL},
    {"_alloc", (PyCFunction)context_alloc, METH_VARARGS, NULL},
    {"free", (PyCFunction)context_free, METH_O, NULL},
    {"register", (PyCFunction)context_register, METH_O, NULL},
    {"deregister", (PyCFunction)context_deregister, METH_O, NULL},
    {"commit", (PyCFunction)context_commit, METH_NOARGS, NULL},
    {"_barrier", (PyCFunction)context_barrier, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
