/* SPDX-License-Identifier: Apache-2.0 */
/* Creation of plans, and stepaf_push_pull, which makes its own plan. */
#include <string.h>

#include "core.h"

static plan_obj *make_plan(context_obj *ctx, bool is_ffn, uint32_t flags)
{
    stepaf_py_plans_retry(ctx);
    plan_obj *plan = PyObject_New(plan_obj, stepaf_py_plan_type);

    if (!plan)
        return NULL;
    Py_INCREF((PyObject *)ctx);
    plan->ctx = ctx;
    plan->handle = NULL;
    plan->flags = flags;
    plan->is_ffn = is_ffn;
    plan->pulls = NULL;
    plan->n_keys = 0;
    plan->last = NULL;
    plan->is_starting = false;
    memset(plan->unwaited, 0, sizeof(plan->unwaited));
    return plan;
}

/* Return the plan, or raise the exception of its failure. */
static plan_obj *made(plan_obj *plan, stepaf_status_t status)
{
    if (status) {
        Py_DECREF((PyObject *)plan);
        return stepaf_py_raise(status);
    }
    plan->depth = LIB(plan_depth)(plan->handle);
    return plan;
}

static void add_key(plan_obj *plan, uint64_t key)
{
    stepaf_py_key(plan->ctx, key, &plan->keys[plan->n_keys++]);
}

/* _plan(push, pull, flags): make an attention rank's plan. */
static PyObject *context_plan(context_obj *self, PyObject *args)
{
    PyObject *push, *pull;
    struct tensors pushes, pulls;
    unsigned flags;
    stepaf_status_t status;

    if (!PyArg_ParseTuple(args, "OOI", &push, &pull, &flags) || !stepaf_py_is_open(self) ||
        !stepaf_py_tensors_of_pairs(&pushes, self, push, false))
        return NULL;
    if (!stepaf_py_tensors_of_pairs(&pulls, self, pull, true)) {
        stepaf_py_tensors_free(&pushes);
        return NULL;
    }
    plan_obj *plan = make_plan(self, false, flags);
    if (plan) {
        plan->pulls = stepaf_py_tensors_keep(&pulls);
        for (int i = 0; i < pushes.n && i < STEPAF_MAX_TENSORS; i++)
            add_key(plan, pushes.array[i].key);
        BRIEFLY(self, status = LIB(plan_create)(self->handle, pushes.array, pushes.n, pulls.array,
                                                pulls.n, flags, &plan->handle));
        plan = made(plan, status);
    }
    stepaf_py_tensors_free(&pulls);
    stepaf_py_tensors_free(&pushes);
    return (PyObject *)plan;
}

static bool read_keys(PyObject *keys, uint64_t *keys_p, int *n_p)
{
    Py_ssize_t n = PySequence_Size(keys);

    if (n > STEPAF_MAX_TENSORS)
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "%zd keys, more than %d", n, STEPAF_MAX_TENSORS);
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++) {
        PyObject *item = PySequence_GetItem(keys, i);
        PyObject *number = item ? PyNumber_Index(item) : NULL;
        keys_p[i] = number ? PyLong_AsUnsignedLongLong(number) : 0;
        Py_XDECREF(number);
        Py_XDECREF(item);
    }
    *n_p = (int)n;
    return !PyErr_Occurred();
}

/* _plan_ffn(keys, answers, flags): make an FFN rank's plan, on streams. */
static PyObject *context_plan_ffn(context_obj *self, PyObject *args)
{
    uint64_t keys[STEPAF_MAX_TENSORS];
    PyObject *numbers, *sources;
    struct tensors answers;
    unsigned flags;
    int n_keys;
    stepaf_status_t status;

    if (!PyArg_ParseTuple(args, "OOI", &numbers, &sources, &flags) || !stepaf_py_is_open(self) ||
        !read_keys(numbers, keys, &n_keys) ||
        !stepaf_py_tensors_of_pairs(&answers, self, sources, false))
        return NULL;
    plan_obj *plan = make_plan(self, true, flags);
    if (plan) {
        int n_peers = LIB(n_peers)(self->handle);
        for (int i = 0; i < answers.n / n_peers && i < STEPAF_MAX_TENSORS; i++)
            add_key(plan, answers.array[i].key);
        BRIEFLY(self, status = LIB(plan_create_ffn)(self->handle, keys, n_keys, answers.array,
                                                    answers.n, flags, &plan->handle));
        plan = made(plan, status);
    }
    stepaf_py_tensors_free(&answers);
    return (PyObject *)plan;
}

static PyObject *context_push_pull(context_obj *self, PyObject *args)
{
    PyObject *push, *pull;
    struct tensors pushes, pulls;
    stepaf_request_h request;
    stepaf_status_t status;

    if (!PyArg_ParseTuple(args, "OO", &push, &pull) || !stepaf_py_is_open(self) ||
        !stepaf_py_tensors_of_pairs(&pushes, self, push, false))
        return NULL;
    if (!stepaf_py_tensors_of_pairs(&pulls, self, pull, true)) {
        stepaf_py_tensors_free(&pushes);
        return NULL;
    }
    BRIEFLY(self, status = LIB(push_pull)(self->handle, pushes.array, pushes.n, pulls.array,
                                          pulls.n, &request));
    PyObject *kept = status ? NULL : stepaf_py_tensors_keep(&pulls);
    PyObject *made = NULL;
    if (kept)
        made = stepaf_py_request(self, NULL, kept, request);
    Py_XDECREF(kept);
    stepaf_py_tensors_free(&pulls);
    stepaf_py_tensors_free(&pushes);
    return status ? stepaf_py_raise(status) : made;
}

PyMethodDef stepaf_py_context_plans[] = {
    {"_plan", (PyCFunction)context_plan, METH_VARARGS, NULL},
    {"_plan_ffn", (PyCFunction)context_plan_ffn, METH_VARARGS, NULL},
    {"push_pull", (PyCFunction)context_push_pull, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
