/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of tensors for the library. */
#include "core.h"

static bool make_room(struct tensors *tensors, Py_ssize_t n)
{
    tensors->n = 0;
    tensors->array = tensors->few;
    tensors->owners = tensors->few_owners;
    if (n < 0)
        return false;
    if (n <= FEW_TENSORS)
        return true;
    tensors->array = PyMem_Calloc((size_t)n, sizeof(*tensors->array));
    tensors->owners = PyMem_Calloc((size_t)n, sizeof(*tensors->owners));
    if (tensors->array && tensors->owners)
        return true;
    stepaf_py_tensors_free(tensors);
    (void)PyErr_NoMemory();
    return false;
}

void stepaf_py_tensors_free(struct tensors *tensors)
{
    for (int i = 0; i < tensors->n; i++)
        Py_XDECREF((PyObject *)tensors->owners[i]);
    if (tensors->array != tensors->few)
        PyMem_Free(tensors->array);
    if (tensors->owners != tensors->few_owners)
        PyMem_Free(tensors->owners);
    tensors->n = 0;
    tensors->array = tensors->few;
    tensors->owners = tensors->few_owners;
}

/* Bytes match any type, and so do elements of the right size that are not a type of the library:
 * numpy has bf16 as unsigned integers, or as signed ones where torch has no others. */
static bool has_type_of(const tensor_obj *tensor, const struct typed_key *key)
{
    bool has_letter =
        key->dtype != STEPAF_BF16 && key->dtype != STEPAF_F8_E4M3 && key->dtype != STEPAF_F8_E5M2;

    if (!tensor->bytes || key->dtype < 0 || key->dtype == tensor->dtype ||
        key->dtype == STEPAF_U8 || tensor->dtype == STEPAF_U8)
        return true;
    if (tensor->dtype == STEPAF_I8 || tensor->dtype == STEPAF_I16)
        return !has_letter && tensor->item == LIB(dtype_bytes)((stepaf_dtype_t)key->dtype);
    return tensor->dtype < 0 && tensor->item == LIB(dtype_bytes)((stepaf_dtype_t)key->dtype);
}

static void refuse_type(const tensor_obj *tensor, const struct typed_key *key)
{
    char other[32];

    if (tensor->dtype < 0)
        (void)PyOS_snprintf(other, sizeof(other), "%zu bytes", tensor->item);
    (void)stepaf_py_refuse(
        STEPAF_ERR_INVALID,
        "the tensor's elements are %s, those of key %llu %s: convert them, or "
        "pass stepaf.view(tensor, shape, dtype)",
        tensor->dtype < 0 ? other : LIB(dtype_name)((stepaf_dtype_t)tensor->dtype),
        (unsigned long long)key->key, LIB(dtype_name)((stepaf_dtype_t)key->dtype));
}

/* Only the first size may differ from the key's. Bytes, or a tensor with another number of
 * dimensions, have been shaped deliberately by the caller. */
static bool has_rows_of(const tensor_obj *tensor, const struct typed_key *key)
{
    if (key->ndim != tensor->ndim || !tensor->bytes || key->dtype == STEPAF_U8 ||
        tensor->dtype == STEPAF_U8)
        return true;
    for (int i = 1; i < key->ndim; i++)
        if (tensor->shape[i] != key->shape[i])
            return false;
    return true;
}

enum { SHAPE_TEXT = 24 * STEPAF_MAX_DIMS };

/* Write a shape in Python's notation. */
static const char *shape_text(char *text, const int64_t *shape, int ndim)
{
    int n = 0;

    for (int i = 0; i < ndim; i++)
        n += PyOS_snprintf(text + n, (size_t)(SHAPE_TEXT - n), "%s%lld", i ? ", " : "",
                           (long long)shape[i]);
    return text;
}

static void refuse_rows(const tensor_obj *tensor, const struct typed_key *key)
{
    char its[SHAPE_TEXT], keys[SHAPE_TEXT];
    int64_t shape[STEPAF_MAX_DIMS];

    for (int i = 0; i < tensor->ndim; i++)
        shape[i] = tensor->shape[i];
    (void)stepaf_py_refuse(STEPAF_ERR_INVALID,
                           "the tensor's shape is (%s), that of key %llu (%s): only the first size "
                           "may differ; if this is meant, pass stepaf.view(tensor, shape)",
                           shape_text(its, shape, tensor->ndim), (unsigned long long)key->key,
                           shape_text(keys, key->shape, key->ndim));
}

/* None is a tensor of no bytes; an integer is a number of bytes of the planned source. */
static bool append(struct tensors *tensors, const struct typed_key *key, PyObject *object)
{
    tensor_obj *tensor = NULL;
    size_t bytes = 0;

    if (PyLong_Check(object)) {
        bytes = PyLong_AsSize_t(object);
        if (bytes == (size_t)-1 && PyErr_Occurred())
            return false;
    } else if (object != Py_None) {
        tensor = stepaf_py_acquire(object);
        if (!tensor)
            return false;
        bool has_type = has_type_of(tensor, key);
        if (!has_type || !has_rows_of(tensor, key)) {
            if (has_type)
                refuse_rows(tensor, key);
            else
                refuse_type(tensor, key);
            Py_DECREF((PyObject *)tensor);
            return false;
        }
    }
    tensors->array[tensors->n].key = key->key;
    tensors->array[tensors->n].data = tensor ? tensor->data : NULL;
    tensors->array[tensors->n].bytes = tensor ? tensor->bytes : bytes;
    tensors->owners[tensors->n++] = tensor;
    return true;
}

static bool append_pair(struct tensors *tensors, context_obj *ctx, PyObject *pair, bool is_written)
{
    PyObject *key = PySequence_GetItem(pair, 0);
    PyObject *object = key ? PySequence_GetItem(pair, 1) : NULL;
    PyObject *number = object ? PyNumber_Index(key) : NULL;
    const uint64_t id = number ? PyLong_AsUnsignedLongLong(number) : 0;
    struct typed_key typed;
    bool done = number && !PyErr_Occurred();

    if (done) {
        stepaf_py_key(ctx, id, &typed);
        done = append(tensors, &typed, object);
    }
    if (done && is_written && tensors->owners[tensors->n - 1] &&
        tensors->owners[tensors->n - 1]->readonly) {
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID,
                               "the tensor that is to receive key %llu is read-only",
                               (unsigned long long)id);
        done = false;
    }
    Py_XDECREF(number);
    Py_XDECREF(object);
    Py_XDECREF(key);
    return done;
}

bool stepaf_py_tensors_of_pairs(struct tensors *tensors, context_obj *ctx, PyObject *pairs,
                                bool is_written)
{
    PyObject *items = PyDict_Check(pairs) ? PyDict_Items(pairs) : PySequence_List(pairs);
    bool done = items && make_room(tensors, PyList_Size(items));

    if (!done) {
        Py_XDECREF(items);
        return false;
    }
    for (Py_ssize_t i = 0; done && i < PyList_Size(items); i++)
        done = append_pair(tensors, ctx, PyList_GetItem(items, i), is_written);
    Py_DECREF(items);
    if (!done)
        stepaf_py_tensors_free(tensors);
    return done;
}

bool stepaf_py_tensors_of(struct tensors *tensors, PyObject *objects, const struct typed_key *keys,
                          int n_keys)
{
    static const struct typed_key none = {.dtype = -1};
    bool is_list = PyList_Check(objects), is_tuple = PyTuple_Check(objects);
    Py_ssize_t n = is_list ? PyList_Size(objects) : is_tuple ? PyTuple_Size(objects) : 1;
    bool done = make_room(tensors, n);

    if (!done)
        return false;
    for (Py_ssize_t i = 0; done && i < n; i++) {
        /* Reading an object may change the list. */
        PyObject *object = is_list    ? PyList_GetItem(objects, i)
                           : is_tuple ? PyTuple_GetItem(objects, i)
                                      : objects;
        Py_XINCREF(object);
        done = object && append(tensors, n_keys ? &keys[i % n_keys] : &none, object);
        Py_XDECREF(object);
    }
    if (!done)
        stepaf_py_tensors_free(tensors);
    return done;
}

PyObject *stepaf_py_tensors_keep(const struct tensors *tensors)
{
    PyObject *kept = PyTuple_New(tensors->n);

    for (int i = 0; kept && i < tensors->n; i++) {
        PyObject *owner = tensors->owners[i] ? (PyObject *)tensors->owners[i] : Py_None;
        Py_INCREF(owner);
        (void)PyTuple_SetItem(kept, i, owner);
    }
    return kept;
}
