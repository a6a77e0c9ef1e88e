/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions: from any object that describes memory to a tensor, and from tensors to the
 * library's arrays. */
#include <dlfcn.h>
#include <string.h>

#include "core.h"

/* The driver knows to which GPU an address belongs; it is loaded if any GPU memory exists. */
int stepaf_py_gpu_of(const void *data)
{
    enum { DEVICE_ORDINAL = 9 }; /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */
    union {
        void *symbol;
        int (*get)(void *value_p, int attribute, unsigned long long address);
    } attribute;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int gpu = 0;

    attribute.symbol = driver ? dlsym(driver, "cuPointerGetAttribute") : NULL;
    if (attribute.symbol && data &&
        attribute.get(&gpu, DEVICE_ORDINAL, (unsigned long long)(uintptr_t)data) != 0)
        gpu = 0;
    if (driver)
        dlclose(driver);
    return gpu;
}

static int dtype_of_format(const char *format, Py_ssize_t itemsize)
{
    static const int by_size[2][9] = {
        {-1, STEPAF_I8, STEPAF_I16, -1, STEPAF_I32, -1, -1, -1, STEPAF_I64},
        {-1, -1, STEPAF_F16, -1, STEPAF_F32, -1, -1, -1, STEPAF_F64},
    };

    if (!format || itemsize < 1 || itemsize > 8)
        return itemsize == 1 ? STEPAF_U8 : -1;
    format += *format == '@' || *format == '=' || *format == '<';
    if (!*format || format[1])
        return -1;
    if (strchr("bhilqn", *format))
        return by_size[0][itemsize];
    if (strchr("efd", *format))
        return by_size[1][itemsize];
    return itemsize == 1 && strchr("Bc?", *format) ? STEPAF_U8 : -1;
}

static tensor_obj *of_buffer(PyObject *object)
{
    enum { FLAGS = PyBUF_STRIDES | PyBUF_FORMAT };
    struct hold *hold = stepaf_py_hold(HOLD_FOREIGN, NULL);
    int64_t shape[STEPAF_MAX_DIMS];
    tensor_obj *tensor = NULL;

    if (!hold)
        return NULL;
    if (PyObject_GetBuffer(object, &hold->buffer, FLAGS | PyBUF_WRITABLE)) {
        PyErr_Clear();
        if (PyObject_GetBuffer(object, &hold->buffer, FLAGS))
            goto out;
    }
    hold->has_buffer = true;
    const Py_buffer *view = &hold->buffer;
    if (!PyBuffer_IsContiguous(view, 'C')) {
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "the array is not contiguous: pass a copy, or "
                                                   "rows of one that is");
    } else if (view->itemsize < 1) {
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "an array of elements without bytes");
    } else if (view->ndim > STEPAF_MAX_DIMS) {
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "an array of %d dimensions", view->ndim);
    } else {
        for (int i = 0; i < view->ndim; i++)
            shape[i] = view->shape[i];
        int dtype = dtype_of_format(view->format, view->itemsize);
        tensor = stepaf_py_tensor(hold, view->buf, (size_t)view->len, dtype, view->ndim, shape,
                                  STEPAF_MEM_HOST);
        if (tensor)
            tensor->readonly = view->readonly;
    }
out:
    stepaf_py_hold_drop(hold);
    return tensor;
}

/* Import by DLPack, without synchronization: operations are ordered on the stream that they are
 * given. */
static tensor_obj *of_dlpack(PyObject *object)
{
    PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    PyObject *exporter = device ? PyObject_GetAttrString(object, "__dlpack__") : NULL;
    PyObject *none = exporter ? PyTuple_New(0) : NULL, *kwargs = NULL, *capsule = NULL;
    tensor_obj *tensor = NULL;
    int type, id;

    if (!none || !PyArg_ParseTuple(device, "ii", &type, &id))
        goto out;
    bool is_host = type == 1;
    kwargs = is_host ? Py_BuildValue("{s:(ii)}", "max_version", 1, 1)
                     : Py_BuildValue("{s:i,s:(ii)}", "stream", -1, "max_version", 1, 1);
    capsule = kwargs ? PyObject_Call(exporter, none, kwargs) : NULL;
    if (!capsule && kwargs && PyErr_ExceptionMatches(PyExc_TypeError)) { /* before DLPack 1.0 */
        PyErr_Clear();
        Py_DECREF(kwargs);
        kwargs = is_host ? Py_BuildValue("{}") : Py_BuildValue("{s:i}", "stream", -1);
        capsule = kwargs ? PyObject_Call(exporter, none, kwargs) : NULL;
    }
    tensor = capsule ? stepaf_py_from_capsule(capsule) : NULL;
out:
    Py_XDECREF(capsule);
    Py_XDECREF(kwargs);
    Py_XDECREF(none);
    Py_XDECREF(exporter);
    Py_XDECREF(device);
    return tensor;
}

/* Bytes and shape by CUDA's array interface; of the element type only the size is known. */
static tensor_obj *of_cuda_array(PyObject *object, PyObject *array)
{
    PyObject *data = PyMapping_GetItemString(array, "data");
    PyObject *sizes = data ? PyMapping_GetItemString(array, "shape") : NULL;
    PyObject *typestr = sizes ? PyMapping_GetItemString(array, "typestr") : NULL;
    PyObject *strides = typestr ? PyMapping_GetItemString(array, "strides") : NULL;
    PyObject *text = typestr ? PyUnicode_AsASCIIString(typestr) : NULL;
    int64_t shape[STEPAF_MAX_DIMS];
    struct hold *hold = NULL;
    tensor_obj *tensor = NULL;
    unsigned long long address;
    int readonly;

    PyErr_Clear(); /* strides are optional */
    if (!text || !PyArg_ParseTuple(data, "Kp", &address, &readonly)) {
        (void)PyErr_Format(PyExc_TypeError, "a malformed __cuda_array_interface__");
        goto out;
    }
    const char *type = PyBytes_AsString(text);
    Py_ssize_t n = PySequence_Size(sizes), itemsize = 0;
    for (const char *digit = type[0] && type[1] ? type + 2 : ""; *digit >= '0' && *digit <= '9';
         digit++)
        itemsize = itemsize * 10 + (*digit - '0');
    if (n < 0 || n > STEPAF_MAX_DIMS || itemsize < 1 || itemsize > INT16_MAX ||
        (strides && strides != Py_None)) {
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID,
                               "the array is not contiguous, or has too many dimensions");
        goto out;
    }
    size_t bytes;
    if (stepaf_py_shape(sizes, shape) != n ||
        !stepaf_py_bytes((size_t)itemsize, (int)n, shape, &bytes))
        goto out;
    const bool is_swapped = type[0] == '>';
    const char format[] = {is_swapped       ? 0
                           : type[1] == 'f' ? (itemsize == 2   ? 'e'
                                               : itemsize == 4 ? 'f'
                                                               : 'd')
                           : type[1] == 'i' ? 'i'
                                            : 'B',
                           0};
    hold = PyErr_Occurred() ? NULL : stepaf_py_hold(HOLD_FOREIGN, NULL);
    if (!hold)
        goto out;
    hold->object = object;
    Py_INCREF(object);
    tensor = stepaf_py_tensor(hold, (void *)(uintptr_t)address, bytes,
                              dtype_of_format(format, itemsize), (int)n, shape, STEPAF_MEM_CUDA);
    stepaf_py_hold_drop(hold);
    if (tensor)
        tensor->readonly = readonly;
out:
    Py_XDECREF(text);
    Py_XDECREF(strides);
    Py_XDECREF(typestr);
    Py_XDECREF(sizes);
    Py_XDECREF(data);
    return tensor;
}

tensor_obj *stepaf_py_acquire(PyObject *object)
{
    if (PyObject_TypeCheck(object, stepaf_py_tensor_type)) {
        tensor_obj *tensor = (tensor_obj *)object;
        if (!stepaf_py_hold_check(tensor->hold))
            return NULL;
        Py_INCREF(object);
        return tensor;
    }
    /* cupy's arrays also have the buffer protocol, which fails, or would report host memory. */
    if (PyObject_CheckBuffer(object) && !PyObject_HasAttrString(object, "__cuda_array_interface__"))
        return of_buffer(object);
    tensor_obj *torchs = stepaf_py_of_torch(object);
    if (torchs)
        return torchs;
    if (PyObject_HasAttrString(object, "__dlpack__"))
        return of_dlpack(object);
    PyObject *array = PyObject_GetAttrString(object, "__cuda_array_interface__");
    if (!array) {
        PyErr_Clear();
        PyErr_SetString(PyExc_TypeError, "a tensor is something with the buffer protocol, "
                                         "__dlpack__ or __cuda_array_interface__");
        return NULL;
    }
    tensor_obj *tensor = of_cuda_array(object, array);
    Py_DECREF(array);
    return tensor;
}

PyObject *stepaf_py_as_tensor(PyObject *module, PyObject *object)
{
    (void)module;
    return (PyObject *)stepaf_py_acquire(object);
}
