/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: commits that change the members, and the list of members. */
#include "core.h"

/* _commit(lost, returning, leaving): -1 takes the value of the settings. */
static PyObject *context_commit(context_obj *self, PyObject *args)
{
    int lost, returning, leaving;
    stepaf_status_t status;
    bool good;

    if (!PyArg_ParseTuple(args, "iip", &lost, &returning, &leaving) || !stepaf_py_is_open(self))
        return NULL;
    const stepaf_commit_params_t params = {
        .field_mask = (lost < 0 ? 0 : STEPAF_COMMIT_LOST) |
                      (returning < 0 ? 0 : STEPAF_COMMIT_RETURN) | STEPAF_COMMIT_LEAVING,
        .lost = (stepaf_commit_lost_t)lost,
        .returning = (stepaf_commit_return_t)returning,
        .leaving = leaving};
    if (!stepaf_py_sweep(self))
        return NULL;
    WAITING(self, &good, status = LIB(commit_with)(self->handle, &params));
    return good ? stepaf_py_done_long(self, status) : NULL;
}

/* _members(): the state of each rank, by world rank. */
static PyObject *context_members(context_obj *self, PyObject *unused)
{
    stepaf_members_t members = {.size = sizeof(members)};
    stepaf_status_t status;
    (void)unused;

    if (!stepaf_py_is_open(self))
        return NULL;
    int n = LIB(size)(self->handle, STEPAF_GROUP_WORLD);
    stepaf_member_state_t *states = PyMem_Calloc((size_t)n + 1, sizeof(*states));
    if (!states)
        return PyErr_NoMemory();
    BRIEFLY(self, status = LIB(members_query)(self->handle, &members, states, n));
    PyObject *list = status ? stepaf_py_raise(status) : PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject *state = PyLong_FromLong((long)states[i]);
        if (!state || PyList_SetItem(list, i, state)) {
            Py_DECREF(list);
            list = NULL;
        }
    }
    PyMem_Free(states);
    return list;
}

static PyObject *context_members_reason(context_obj *self, PyObject *rank)
{
    const char *reason;
    int number;

    if (!stepaf_py_number(rank, &number) || !stepaf_py_is_open(self))
        return NULL;
    BRIEFLY(self, reason = LIB(members_reason)(self->handle, number));
    if (!reason)
        return stepaf_py_refuse(STEPAF_ERR_INVALID, "there is no world rank %d", number);
    return stepaf_py_text(reason);
}

static PyObject *context_members_address(context_obj *self, PyObject *unused)
{
    char text[1024];
    stepaf_status_t status;
    (void)unused;

    if (!stepaf_py_is_open(self))
        return NULL;
    BRIEFLY(self, status = LIB(members_address)(self->handle, text, sizeof(text)));
    return status ? stepaf_py_raise(status) : stepaf_py_text(text);
}

static PyObject *context_members_fd(context_obj *self, PyObject *unused)
{
    (void)unused;
    return stepaf_py_is_open(self) ? PyLong_FromLong(LIB(members_fd)(self->handle)) : NULL;
}

PyMethodDef stepaf_py_context_members[] = {
    {"_commit", (PyCFunction)context_commit, METH_VARARGS, NULL},
    {"_members", (PyCFunction)context_members, METH_NOARGS, NULL},
    {"members_reason", (PyCFunction)context_members_reason, METH_O,
     "members_reason(world_rank)\n\nWhy a rank is lost or out; \"\" if it is neither."},
    {"members_address", (PyCFunction)context_members_address, METH_NOARGS,
     "members_address()\n\nWhere a process that takes a lost rank's place can call this rank: a\n"
     "value for its STEPAF_JOIN."},
    {"members_fd", (PyCFunction)context_members_fd, METH_NOARGS,
     "members_fd()\n\nA file descriptor that becomes readable when a rank is found to be lost, "
     "out,\n"
     "asking or leaving; reading 8 bytes resets it. The context's own. -1 if there is none."},
    {NULL, NULL, 0, NULL},
};
