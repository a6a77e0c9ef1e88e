/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving batches. */
#include "core.h"

enum { FEW_BATCHES = 64 };

/* Receive in pieces; the first poll keeps the interpreter lock. */
static int receive(context_obj *ctx, stepaf_from_t from, uint32_t flags, int64_t timeout_us,
                   stepaf_batch_h *batches_p, int capacity)
{
    stepaf_status_t status;
    int n = 0, done = 1;

    BRIEFLY(ctx, status = LIB(recv)(ctx->handle, from, flags, 0, batches_p, capacity, &n));
    if (status == STEPAF_ERR_TIMEOUT && timeout_us == 0) {
        (void)stepaf_py_raise_plain(status);
        return -1;
    }
    if (status == STEPAF_ERR_TIMEOUT) {
        struct waiter waiter = stepaf_py_waiter(ctx, timeout_us);
        do {
            int64_t piece_us = stepaf_py_piece_us(&waiter);
            UNLOCKED(ctx, false,
                     status =
                         LIB(recv)(ctx->handle, from, flags, piece_us, batches_p, capacity, &n));
            done = stepaf_py_piece_done(&waiter, status);
        } while (done == 0);
    }
    if (done > 0 && status)
        (void)stepaf_py_raise(status);
    return done < 0 || status ? -1 : n;
}

/* _recv(timeout): one batch, of any attention rank. */
static PyObject *context_recv(context_obj *self, PyObject *timeout)
{
    stepaf_batch_h batch;
    int64_t timeout_us;

    if (!stepaf_py_timeout(timeout, &timeout_us) || !stepaf_py_is_open(self))
        return NULL;
    int n = receive(self, STEPAF_FROM_ANY, 0, timeout_us, &batch, 1);
    return n < 0 ? NULL : stepaf_py_batch(self, batch);
}

/* _recv_list(each, skip_lost, timeout, capacity): a list, with None for lost ranks. */
static PyObject *context_recv_list(context_obj *self, PyObject *args)
{
    stepaf_batch_h few[FEW_BATCHES], *batches = few;
    int each, skip_lost, capacity;
    PyObject *timeout, *list = NULL;
    int64_t timeout_us;

    if (!PyArg_ParseTuple(args, "ppOi", &each, &skip_lost, &timeout, &capacity) ||
        !stepaf_py_timeout(timeout, &timeout_us) || !stepaf_py_is_open(self))
        return NULL;
    if (each && capacity < LIB(n_peers)(self->handle))
        capacity = LIB(n_peers)(self->handle);
    if (capacity > FEW_BATCHES)
        batches = PyMem_Calloc((size_t)capacity, sizeof(*batches));
    if (!batches)
        return PyErr_NoMemory();
    int n = receive(self, each ? STEPAF_FROM_EACH : STEPAF_FROM_ANY,
                    skip_lost ? STEPAF_RECV_SKIP_LOST : 0, timeout_us, batches, capacity);
    if (n >= 0)
        list = PyList_New(n);
    for (int i = 0; i < n; i++) {
        PyObject *batch = Py_None;
        if (batches[i])
            batch = stepaf_py_batch(self, batches[i]); /* NULL: released */
        else
            Py_INCREF(batch);
        if (list && batch && !PyList_SetItem(list, i, batch)) /* which steals the reference */
            continue;
        if (!list)
            Py_XDECREF(batch); /* release it, since no caller receives it */
        Py_XDECREF(list);
        list = NULL;
    }
    if (batches != few)
        PyMem_Free(batches);
    return list;
}

PyMethodDef stepaf_py_context_recv[] = {
    {"_recv", (PyCFunction)context_recv, METH_O, NULL},
    {"_recv_list", (PyCFunction)context_recv_list, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
