/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to several batches in one call. */
#include "core.h"

struct many {
    Py_ssize_t n;
    batch_obj **objects;
    stepaf_batch_h *handles;
    uint32_t *rows;
    stepaf_status_t *results;
    context_obj *ctx;
};

static void many_free(struct many *many)
{
    PyMem_Free(many->objects);
    PyMem_Free(many->handles);
    PyMem_Free(many->rows);
    PyMem_Free(many->results);
}

static bool many_read(struct many *many, PyObject *list, PyObject *rows)
{
    size_t n = (size_t)PyList_Size(list);

    many->n = (Py_ssize_t)n;
    many->objects = PyMem_Calloc(n + 1, sizeof(*many->objects));
    many->handles = PyMem_Calloc(n + 1, sizeof(*many->handles));
    many->results = PyMem_Calloc(n + 1, sizeof(*many->results));
    many->rows = rows == Py_None ? NULL : PyMem_Calloc(n + 1, sizeof(*many->rows));
    if (!many->objects || !many->handles || !many->results || (rows != Py_None && !many->rows)) {
        (void)PyErr_NoMemory();
        return false;
    }
    if (rows != Py_None && PySequence_Size(rows) != many->n && !PyErr_Occurred())
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "rows are not as many as batches");
    for (Py_ssize_t i = 0; i < many->n && !PyErr_Occurred(); i++) {
        PyObject *batch = PyList_GetItem(list, i);
        PyObject *count = many->rows ? PySequence_GetItem(rows, i) : NULL;
        unsigned long n_rows = count ? PyLong_AsUnsignedLong(count) : 0;
        Py_XDECREF(count);
        if (n_rows > UINT32_MAX && !PyErr_Occurred())
            (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "%lu rows of batch %zd", n_rows, i);
        if (many->rows)
            many->rows[i] = (uint32_t)n_rows;
        if (batch == Py_None)
            continue;
        if (!PyObject_TypeCheck(batch, stepaf_py_batch_type)) {
            PyErr_Format(PyExc_TypeError, "%R is not a Batch", batch);
            break;
        }
        many->objects[i] = (batch_obj *)batch;
        many->handles[i] = many->objects[i]->hold->batch;
        many->ctx = many->objects[i]->hold->ctx;
    }
    return !PyErr_Occurred();
}

/* The keys of the answers are those that the first batch expects. */
static int many_keys(const struct many *many, struct typed_key *keys)
{
    Py_ssize_t i = 0;

    while (i < many->n && (!many->objects[i] || many->objects[i]->hold->ended))
        i++;
    if (i == many->n)
        return 0;
    int n = many->objects[i]->info.n_answers;
    for (int k = 0; k < n; k++) {
        stepaf_tensor_info_t info = {.size = sizeof(info)};
        stepaf_status_t status;
        BRIEFLY(many->ctx, status = LIB(batch_answer)(many->handles[i], k, &info));
        if (status)
            return 0;
        stepaf_py_key_of_info(&info, &keys[k]);
    }
    return n;
}

/* respond_many(batches, tensors, rows, release): a status for each, all of them STEPAF_OK. */
PyObject *stepaf_py_respond_many(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"batches", "tensors", "rows", "release", NULL};
    struct typed_key keys[STEPAF_MAX_TENSORS];
    PyObject *batches, *objects, *rows = Py_None, *made = NULL;
    struct many many = {0};
    struct tensors tensors;
    int release = 1;
    stepaf_status_t status;
    (void)module;

    if (!stepaf_py_parse(args, kwargs, "OO|Op", names, &batches, &objects, &rows, &release))
        return NULL;
    PyObject *list = PySequence_List(batches);
    if (!list || !many_read(&many, list, rows))
        goto out;
    if (!many.ctx) {
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "there is no batch to answer");
        goto out;
    }
    if (!stepaf_py_is_open(many.ctx) ||
        !stepaf_py_tensors_of(&tensors, objects, keys, many_keys(&many, keys)))
        goto out;
    for (int i = 0; i < many.n; i++)
        many.results[i] = STEPAF_ERR_INVALID; /* of those that the call does not come to */
    BRIEFLY(many.ctx, status = LIB(respond_many)(
                          many.handles, (int)many.n, tensors.array, tensors.n, many.rows,
                          release ? STEPAF_RESPOND_RELEASE : 0, many.results));
    stepaf_py_tensors_free(&tensors);
    PyObject *results = PyList_New(many.n);
    for (Py_ssize_t i = 0; results && i < many.n; i++) {
        if (many.objects[i] && many.results[i] == STEPAF_OK)
            many.objects[i]->hold->ended = release;
        (void)PyList_SetItem(results, i, PyLong_FromLong(many.results[i]));
    }
    made = status && results ? stepaf_py_raise(status) : results;
    if (made != results)
        Py_XDECREF(results);
out:
    many_free(&many);
    Py_XDECREF(list);
    return made;
}
