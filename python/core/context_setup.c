/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: keys, barrier. */
#include <string.h>

#include "core.h"

void stepaf_py_key(const context_obj *ctx, uint64_t key, struct typed_key *typed_p)
{
    PyObject *number = ctx->keys ? PyLong_FromUnsignedLongLong(key) : NULL;
    PyObject *bytes = number ? PyDict_GetItem(ctx->keys, number) : NULL;

    Py_XDECREF(number);
    if (bytes) {
        memcpy(typed_p, PyBytes_AsString(bytes), sizeof(*typed_p));
    } else {
        typed_p->key = key;
        typed_p->dtype = -1;
        typed_p->ndim = 0;
    }
}

/* Without it, only the comparison of types and shapes is skipped. */
static void keep_key(context_obj *ctx, uint64_t key, const stepaf_key_params_t *params)
{
    struct typed_key typed = {.key = key, .dtype = (int)params->dtype, .ndim = (int)params->ndim};

    memcpy(typed.shape, params->shape, sizeof(typed.shape));
    PyObject *number = PyLong_FromUnsignedLongLong(key);
    PyObject *value = PyBytes_FromStringAndSize((const char *)&typed, sizeof(typed));
    if (!ctx->keys)
        ctx->keys = PyDict_New();
    if (!ctx->keys || !number || !value || PyDict_SetItem(ctx->keys, number, value))
        PyErr_Clear();
    Py_XDECREF(value);
    Py_XDECREF(number);
}

static PyObject *context_declare(context_obj *self, PyObject *args)
{
    unsigned long long key, max_bytes;
    int direction, dtype, mem_kind, depth;
    PyObject *shape;
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DTYPE | STEPAF_KEY_MEM_KIND};

    if (!PyArg_ParseTuple(args, "KiKiOii", &key, &direction, &max_bytes, &dtype, &shape, &depth,
                          &mem_kind) ||
        !stepaf_py_is_open(self))
        return NULL;
    params.dtype = (stepaf_dtype_t)dtype;
    params.mem_kind = (stepaf_mem_kind_t)mem_kind;
    params.depth = (unsigned)depth; /* a negative one is too large */
    params.field_mask |= depth ? STEPAF_KEY_DEPTH : 0;
    if (shape != Py_None) {
        params.ndim = stepaf_py_shape(shape, params.shape);
        params.field_mask |= STEPAF_KEY_SHAPE;
        if (params.ndim < 0)
            return NULL;
    }
    stepaf_status_t status;
    BRIEFLY(self, status = LIB(key_declare)(self->handle, key, (stepaf_direction_t)direction,
                                            max_bytes, &params));
    if (!status)
        keep_key(self, key, &params);
    return stepaf_py_done(status);
}

static PyObject *context_withdraw(context_obj *self, PyObject *args)
{
    unsigned long long key;
    stepaf_status_t status;

    if (!PyArg_ParseTuple(args, "K", &key) || !stepaf_py_is_open(self))
        return NULL;
    stepaf_py_plans_retry(self);
    BRIEFLY(self, status = LIB(key_withdraw)(self->handle, key));
    return stepaf_py_done(status);
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
        Py_ssize_t n = PySequence_Size(ranks);
        n_ranks = n > INT_MAX - 1 ? -1 : (int)n;
        array = n_ranks < 0 ? NULL : PyMem_Malloc(sizeof(int) * ((size_t)n_ranks + 1));
        if (!array)
            return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    for (int i = 0; i < n_ranks; i++) {
        PyObject *rank = PySequence_GetItem(ranks, i);
        if (rank)
            (void)stepaf_py_number(rank, &array[i]);
        Py_XDECREF(rank);
        if (PyErr_Occurred())
            break;
    }
    tensor_obj *tensor = PyErr_Occurred() ? NULL : stepaf_py_acquire(object);
    if (tensor && tensor->readonly) {
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID,
                               "the tensor that is to receive key %llu is read-only", key);
        Py_DECREF((PyObject *)tensor);
        tensor = NULL;
    }
    if (tensor)
        BRIEFLY(self, status = LIB(key_set_recv)(self->handle, key, tensor->data, tensor->bytes,
                                                 array, n_ranks));
    PyMem_Free(array);
    if (!tensor)
        return NULL;
    Py_DECREF((PyObject *)tensor);
    return stepaf_py_done(status);
}

static PyObject *context_barrier(context_obj *self, PyObject *args)
{
    PyObject *timeout = Py_None;
    int64_t timeout_us;
    int group = STEPAF_GROUP_WORLD;
    stepaf_status_t status;
    bool good;

    if (!PyArg_ParseTuple(args, "|iO", &group, &timeout) ||
        !stepaf_py_timeout(timeout, &timeout_us) || !stepaf_py_is_open(self))
        return NULL;
    WAITING(self, &good, status = LIB(barrier)(self->handle, (stepaf_group_t)group, timeout_us));
    return good ? stepaf_py_done_long(self, status) : NULL;
}

PyMethodDef stepaf_py_context_setup[] = {
    {"_declare", (PyCFunction)context_declare, METH_VARARGS, NULL},
    {"_withdraw", (PyCFunction)context_withdraw, METH_VARARGS, NULL},
    {"_set_recv", (PyCFunction)context_set_recv, METH_VARARGS, NULL},
    {"_barrier", (PyCFunction)context_barrier, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
