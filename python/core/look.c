/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: ranks, progress, and information. */
#include <stdlib.h>

#include "core.h"

static PyObject *context_role(context_obj *self, PyObject *unused)
{
    (void)unused;
    return stepaf_py_is_open(self) ? PyLong_FromLong((long)LIB(role)(self->handle)) : NULL;
}

/* An item that an argument asks for. */
static PyObject *fact(context_obj *self, PyObject *args, int (*call)(context_obj *self, int number))
{
    int number;

    if (!PyArg_ParseTuple(args, "i", &number) || !stepaf_py_is_open(self))
        return NULL;
    return PyLong_FromLong(call(self, number));
}

static int rank_in(context_obj *self, int group)
{
    return LIB(rank)(self->handle, (stepaf_group_t)group);
}

static int size_of(context_obj *self, int group)
{
    return LIB(size)(self->handle, (stepaf_group_t)group);
}

static int peer_rank(context_obj *self, int index)
{
    return LIB(peer_rank)(self->handle, index);
}

static int peer_index(context_obj *self, int rank)
{
    return LIB(peer_index)(self->handle, rank);
}

static PyObject *context_rank(context_obj *self, PyObject *args)
{
    return fact(self, args, rank_in);
}

static PyObject *context_size(context_obj *self, PyObject *args)
{
    return fact(self, args, size_of);
}

static PyObject *context_peer_rank(context_obj *self, PyObject *args)
{
    return fact(self, args, peer_rank);
}

static PyObject *context_peer_index(context_obj *self, PyObject *args)
{
    return fact(self, args, peer_index);
}

static PyObject *context_world_rank(context_obj *self, PyObject *args)
{
    int group, rank;

    if (!PyArg_ParseTuple(args, "ii", &group, &rank) || !stepaf_py_is_open(self))
        return NULL;
    return PyLong_FromLong(LIB(world_rank)(self->handle, (stepaf_group_t)group, rank));
}

static PyObject *context_n_peers(context_obj *self, PyObject *unused)
{
    (void)unused;
    return stepaf_py_is_open(self) ? PyLong_FromLong(LIB(n_peers)(self->handle)) : NULL;
}

static PyObject *context_epoch(context_obj *self, PyObject *unused)
{
    (void)unused;
    return stepaf_py_is_open(self) ? PyLong_FromUnsignedLong(LIB(epoch)(self->handle)) : NULL;
}

static PyObject *context_clock_ns(context_obj *self, PyObject *unused)
{
    (void)unused;
    return stepaf_py_is_open(self) ? PyLong_FromLongLong(LIB(clock_ns)(self->handle)) : NULL;
}

static PyObject *context_progress(context_obj *self, PyObject *unused)
{
    stepaf_status_t status;
    (void)unused;

    if (!stepaf_py_is_open(self))
        return NULL;
    BRIEFLY(self, status = LIB(progress)(self->handle));
    if (status)
        return stepaf_py_raise(status);
    Py_RETURN_NONE;
}

/* Return {name: value} of fields that are all of one kind. */
static PyObject *record(const char *const *names, const void *values, size_t n)
{
    PyObject *dict = PyDict_New();
    const uint64_t *value = values;

    for (size_t i = 0; dict && i < n; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(value[i]);
        if (!number || PyDict_SetItemString(dict, names[i], number)) {
            Py_DECREF(dict);
            dict = NULL;
        }
        Py_XDECREF(number);
    }
    return dict;
}

static PyObject *context_counters(context_obj *self, PyObject *unused)
{
#define COUNTER_NAME(name_, text_) #name_,
    static const char *const names[] = {STEPAF_COUNTER_MAP(COUNTER_NAME)};
#undef COUNTER_NAME
    stepaf_counters_t counters = {.size = sizeof(counters)};
    (void)unused;

    if (!stepaf_py_is_open(self))
        return NULL;
    stepaf_status_t status;
    BRIEFLY(self, status = LIB(counters_query)(self->handle, &counters));
    return status ? stepaf_py_raise(status)
                  : record(names, &counters.operations_started, sizeof(names) / sizeof(*names));
}

static PyObject *context_memory_use(context_obj *self, PyObject *unused)
{
    stepaf_memory_use_t use = {.size = sizeof(use)};
    stepaf_status_t status;
    (void)unused;

    if (!stepaf_py_is_open(self))
        return NULL;
    BRIEFLY(self, status = LIB(memory_query)(self->handle, &use));
    if (status)
        return stepaf_py_raise(status);
    return Py_BuildValue("{s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n}", "fixed", (Py_ssize_t)use.fixed,
                         "declared", (Py_ssize_t)use.declared, "per_peer", (Py_ssize_t)use.per_peer,
                         "peers", (Py_ssize_t)use.peers, "per_key", (Py_ssize_t)use.per_key,
                         "key_peers", (Py_ssize_t)use.key_peers, "receive", (Py_ssize_t)use.receive,
                         "bounce", (Py_ssize_t)use.bounce);
}

static PyObject *context_link(context_obj *self, PyObject *args)
{
    stepaf_link_info_t info = {.size = sizeof(info)};
    stepaf_status_t status;
    int rank;

    if (!PyArg_ParseTuple(args, "i", &rank) || !stepaf_py_is_open(self))
        return NULL;
    BRIEFLY(self, status = LIB(link_query)(self->handle, rank, &info));
    if (status)
        return stepaf_py_raise(status);
    return stepaf_py_hook(
        "link",
        Py_BuildValue("(iOsNNKKK)", info.world_rank, info.is_lost ? Py_True : Py_False,
                      info.transport, stepaf_py_text(info.address), stepaf_py_text(info.refused),
                      (unsigned long long)info.bytes_sent, (unsigned long long)info.messages_sent,
                      (unsigned long long)info.bytes_received));
}

static PyObject *context_map_check(context_obj *self, PyObject *args)
{
    PyObject *timeout = Py_None;
    int64_t timeout_us;
    char *text = NULL;
    stepaf_status_t status;
    bool good;

    if (!PyArg_ParseTuple(args, "|O", &timeout) || !stepaf_py_timeout(timeout, &timeout_us) ||
        !stepaf_py_is_open(self))
        return NULL;
    WAITING(self, &good, status = LIB(map_check)(self->handle, timeout_us, &text));
    PyObject *made = !good    ? NULL
                     : status ? stepaf_py_done_long(self, status)
                              : stepaf_py_text(text ? text : "");
    free(text);
    return made;
}

/* _trace(capacity): the newest records, oldest first. */
static PyObject *context_trace(context_obj *self, PyObject *args)
{
    Py_ssize_t capacity;
    size_t n = 0;
    stepaf_status_t status;

    if (!PyArg_ParseTuple(args, "n", &capacity) || !stepaf_py_is_open(self))
        return NULL;
    if (capacity < 0)
        return stepaf_py_refuse(STEPAF_ERR_INVALID, "a capacity of %zd records", capacity);
    stepaf_trace_record_t *records = PyMem_Calloc((size_t)capacity + 1, sizeof(*records));
    if (!records)
        return PyErr_NoMemory();
    BRIEFLY(self, status = LIB(trace_read)(self->handle, records, sizeof(*records),
                                           (size_t)capacity, &n));
    PyObject *list = status ? stepaf_py_raise(status) : PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        const stepaf_trace_record_t *r = &records[i];
        PyObject *made = stepaf_py_hook(
            "trace", Py_BuildValue("(LIisiiK)", (long long)r->time_ns, r->sequence, (int)r->plan,
                                   LIB(event_name)((stepaf_event_t)r->event), r->peer, r->tensor,
                                   (unsigned long long)r->bytes));
        if (!made || PyList_SetItem(list, (Py_ssize_t)i, made)) {
            Py_DECREF(list);
            list = NULL;
        }
    }
    PyMem_Free(records);
    return list;
}

static PyObject *context_trace_clear(context_obj *self, PyObject *unused)
{
    stepaf_status_t status;
    (void)unused;

    if (!stepaf_py_is_open(self))
        return NULL;
    BRIEFLY(self, status = LIB(trace_clear)(self->handle));
    if (status)
        return stepaf_py_raise(status);
    Py_RETURN_NONE;
}

PyMethodDef stepaf_py_context_look[] = {
    {"_role", (PyCFunction)context_role, METH_NOARGS, NULL},
    {"_rank", (PyCFunction)context_rank, METH_VARARGS, NULL},
    {"_size", (PyCFunction)context_size, METH_VARARGS, NULL},
    {"_world_rank", (PyCFunction)context_world_rank, METH_VARARGS, NULL},
    {"_n_peers", (PyCFunction)context_n_peers, METH_NOARGS, NULL},
    {"peer_rank", (PyCFunction)context_peer_rank, METH_VARARGS, NULL},
    {"peer_index", (PyCFunction)context_peer_index, METH_VARARGS, NULL},
    {"_epoch", (PyCFunction)context_epoch, METH_NOARGS, NULL},
    {"clock_ns", (PyCFunction)context_clock_ns, METH_NOARGS, NULL},
    {"progress", (PyCFunction)context_progress, METH_NOARGS, NULL},
    {"counters", (PyCFunction)context_counters, METH_NOARGS, NULL},
    {"memory_use", (PyCFunction)context_memory_use, METH_NOARGS, NULL},
    {"link", (PyCFunction)context_link, METH_VARARGS, NULL},
    {"_map_check", (PyCFunction)context_map_check, METH_VARARGS, NULL},
    {"_trace", (PyCFunction)context_trace, METH_VARARGS, NULL},
    {"trace_clear", (PyCFunction)context_trace_clear, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
