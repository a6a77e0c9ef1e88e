/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors: views of memory with a shape and an element type. */
#include "core.h"

PyTypeObject *stepaf_py_tensor_type;

/* Of a type that the library does not have, only the size is known. */
static size_t item_bytes(int dtype, size_t bytes, int ndim, const int64_t *shape)
{
    size_t n = 1;

    if (dtype >= 0)
        return LIB(dtype_bytes)((stepaf_dtype_t)dtype);
    for (int i = 0; i < ndim; i++)
        n *= (size_t)shape[i];
    return n && bytes > n ? bytes / n : 1;
}

tensor_obj *stepaf_py_tensor(struct hold *hold, void *data, size_t bytes, int dtype, int ndim,
                             const int64_t *shape, stepaf_mem_kind_t mem_kind)
{
    tensor_obj *tensor = PyObject_New(tensor_obj, stepaf_py_tensor_type);

    if (!tensor)
        return NULL;
    hold->refs++;
    tensor->hold = hold;
    tensor->key = 0;
    tensor->data = data;
    tensor->bytes = bytes;
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    tensor->mem_kind = mem_kind;
    tensor->device = mem_kind == STEPAF_MEM_CUDA ? stepaf_py_gpu_of(data) : 0;
    tensor->readonly = false;
    tensor->is_pinned = false;
    tensor->item = item_bytes(dtype, bytes, ndim, shape);
    Py_ssize_t stride = (Py_ssize_t)tensor->item;
    for (int i = ndim; i-- > 0;) {
        tensor->shape[i] = (Py_ssize_t)shape[i];
        tensor->strides[i] = stride;
        stride *= tensor->shape[i];
    }
    return tensor;
}

PyObject *stepaf_py_tensor_from_info(struct hold *hold, const stepaf_tensor_info_t *info)
{
    tensor_obj *tensor = stepaf_py_tensor(hold, info->data, info->bytes, (int)info->dtype,
                                          info->ndim, info->shape, info->mem_kind);
    if (!tensor)
        return NULL;
    tensor->key = info->key;
    /* Anything but whole rows has one dimension, of bytes. */
    if (info->ndim == 1 && info->bytes && (size_t)info->shape[0] == info->bytes) {
        tensor->dtype = tensor->item == 1 ? tensor->dtype : STEPAF_U8;
        tensor->item = 1;
        tensor->strides[0] = 1;
    }
    return (PyObject *)tensor;
}

static void tensor_dealloc(tensor_obj *self)
{
    PyTypeObject *type = Py_TYPE(self);

    if (self->is_pinned)
        stepaf_py_unexport(self);
    stepaf_py_hold_drop(self->hold);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyObject *stepaf_py_tensor_shape(tensor_obj *self, void *closure)
{
    PyObject *shape = PyTuple_New(self->ndim);
    (void)closure;

    for (int i = 0; shape && i < self->ndim; i++) {
        PyObject *size = PyLong_FromSsize_t(self->shape[i]);
        if (!size || PyTuple_SetItem(shape, i, size)) {
            Py_DECREF(shape);
            return NULL;
        }
    }
    return shape;
}

static PyObject *tensor_dtype(tensor_obj *self, void *closure)
{
    (void)closure;
    if (self->dtype < 0)
        Py_RETURN_NONE;
    return PyUnicode_FromString(LIB(dtype_name)((stepaf_dtype_t)self->dtype));
}

static PyObject *tensor_bytes(tensor_obj *self, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(self->bytes);
}

static PyObject *tensor_key(tensor_obj *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(self->key);
}

static PyObject *tensor_device(tensor_obj *self, void *closure)
{
    (void)closure;
    return self->mem_kind == STEPAF_MEM_HOST ? PyUnicode_FromString("cpu")
                                             : PyUnicode_FromFormat("cuda:%d", self->device);
}

static PyObject *tensor_is_valid(tensor_obj *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(!stepaf_py_hold_end(self->hold));
}

static PyObject *tensor_data_ptr(tensor_obj *self, PyObject *unused)
{
    (void)unused;
    return stepaf_py_hold_check(self->hold) ? PyLong_FromVoidPtr(self->data) : NULL;
}

static Py_ssize_t tensor_length(tensor_obj *self)
{
    return self->ndim ? self->shape[0] : 0;
}

/* Make a contiguous part of @a self, with the shape of @a ndim sizes. */
static PyObject *part(tensor_obj *self, size_t offset, size_t bytes, int dtype, int ndim,
                      const int64_t *shape)
{
    tensor_obj *made = stepaf_py_tensor(self->hold, self->data + offset, bytes, dtype, ndim, shape,
                                        self->mem_kind);
    if (!made)
        return NULL;
    made->key = self->key;
    if (dtype < 0) { /* an empty part has no element to identify it */
        Py_ssize_t stride = (Py_ssize_t)self->item;
        made->item = self->item;
        for (int i = ndim; i-- > 0; stride *= made->shape[i])
            made->strides[i] = stride;
    }
    made->device = self->device;
    made->readonly = self->readonly;
    return (PyObject *)made;
}

/* Return row i, or rows i to j. */
static PyObject *tensor_subscript(tensor_obj *self, PyObject *index)
{
    int64_t shape[STEPAF_MAX_DIMS];
    Py_ssize_t first, stop, step = 1, count = 1;
    bool is_slice = PySlice_Check(index);

    if (!stepaf_py_hold_check(self->hold))
        return NULL;
    if (!self->ndim)
        return PyErr_Format(PyExc_IndexError, "the tensor has no dimension");
    if (is_slice) {
        if (PySlice_Unpack(index, &first, &stop, &step))
            return NULL;
        count = PySlice_AdjustIndices(self->shape[0], &first, &stop, step);
        if (step != 1)
            return PyErr_Format(PyExc_IndexError,
                                "rows are taken one after the other, not by a "
                                "step of %zd",
                                step);
    } else {
        first = PyNumber_AsSsize_t(index, PyExc_IndexError);
        if (first == -1 && PyErr_Occurred())
            return NULL;
        first += first < 0 ? self->shape[0] : 0;
        if (first < 0 || first >= self->shape[0])
            return PyErr_Format(PyExc_IndexError, "row %zd of %zd", first, self->shape[0]);
    }
    shape[0] = count;
    for (int i = 1; i < self->ndim; i++)
        shape[i] = self->shape[i];
    size_t row = (size_t)self->strides[0];
    return part(self, (size_t)first * row, (size_t)count * row, self->dtype,
                is_slice ? self->ndim : self->ndim - 1, is_slice ? shape : shape + 1);
}

/* view(shape, dtype number): return the same bytes with another shape and type. */
static PyObject *tensor_view(tensor_obj *self, PyObject *args)
{
    int64_t shape[STEPAF_MAX_DIMS];
    PyObject *sizes;
    int dtype;

    if (!PyArg_ParseTuple(args, "Oi", &sizes, &dtype) || !stepaf_py_hold_check(self->hold))
        return NULL;
    int n = stepaf_py_shape(sizes, shape);
    size_t bytes;
    if (n < 0 || !stepaf_py_bytes(dtype < 0 ? self->item : LIB(dtype_bytes)((stepaf_dtype_t)dtype),
                                  n, shape, &bytes))
        return NULL;
    if (bytes > self->bytes)
        return stepaf_py_refuse(STEPAF_ERR_SIZE, "a view of %zu bytes of a tensor of %zu", bytes,
                                self->bytes);
    return part(self, 0, bytes, dtype, n, shape);
}

static PyObject *tensor_array(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None;

    if (!stepaf_py_parse(args, kwargs, "|OO", names, &dtype, &copy))
        return NULL;
    return stepaf_py_hook("array", PyTuple_Pack(3, self, dtype, copy));
}

static PyGetSetDef properties[] = {
    {"shape", (getter)stepaf_py_tensor_shape, NULL, "Sizes of the dimensions.", NULL},
    {"dtype", (getter)tensor_dtype, NULL, "Element type, as the library names it (\"bf16\").",
     NULL},
    {"nbytes", (getter)tensor_bytes, NULL, "Bytes of all elements.", NULL},
    {"key", (getter)tensor_key, NULL, "Key that the tensor came by; 0 if by none.", NULL},
    {"device", (getter)tensor_device, NULL, "\"cpu\" or \"cuda:N\".", NULL},
    {"valid", (getter)tensor_is_valid, NULL, "Whether the memory is still the tensor's.", NULL},
    {"__cuda_array_interface__", (getter)stepaf_py_cuda_array, NULL, "For GPU memory only.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"data_ptr", (PyCFunction)tensor_data_ptr, METH_NOARGS,
     "Address of the first element, as an integer."},
    {"_view", (PyCFunction)tensor_view, METH_VARARGS, NULL},
    {"__array__", METHOD(tensor_array), METH_VARARGS | METH_KEYWORDS,
     "For numpy: as by the buffer."},
    {"__dlpack__", METHOD(stepaf_py_dlpack), METH_VARARGS | METH_KEYWORDS,
     "Export by DLPack. Nothing is synchronized: the stream argument is not used."},
    {"__dlpack_device__", stepaf_py_dlpack_device, METH_NOARGS, "DLPack's device."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, stepaf_py_no_new},
    {Py_tp_doc,
     (void *)"A view of memory: of a receive buffer, of an allocation, or of somebody else's."},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {Py_bf_getbuffer, stepaf_py_getbuffer},
    {Py_bf_releasebuffer, stepaf_py_releasebuffer},
    {Py_mp_length, tensor_length},
    {Py_mp_subscript, tensor_subscript},
    {0, NULL},
};

PyType_Spec stepaf_py_tensor_spec = {
    .name = "stepaf._core.Tensor",
    .basicsize = sizeof(tensor_obj),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
