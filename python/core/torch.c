/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of torch, if it is loaded, read through their attributes: DLPack takes ten times as
 * long. Unusual tensors go through DLPack nevertheless. */
#include "core.h"

static PyObject *tensor_type; /* torch.Tensor, once it is known */
static PyObject *dtypes;      /* {torch's type: the library's number} */

static bool find_torch(void)
{
    PyObject *modules = PySys_GetObject("modules");
    PyObject *torch = modules ? PyDict_GetItemString(modules, "torch") : NULL;
    PyObject *type = torch ? PyObject_GetAttrString(torch, "Tensor") : NULL;

    if (type)
        dtypes = stepaf_py_hook("torch_dtypes", PyTuple_Pack(1, torch));
    if (!dtypes) {
        PyErr_Clear(); /* absent, or not yet initialized */
        Py_XDECREF(type);
        return false;
    }
    tensor_type = type;
    return true;
}

static int attribute(PyObject *object, const char *name, bool is_call)
{
    PyObject *value =
        is_call ? PyObject_CallMethod(object, name, NULL) : PyObject_GetAttrString(object, name);
    int truth = value ? PyObject_IsTrue(value) : -1;

    Py_XDECREF(value);
    return truth;
}

static int number_of_dtype(PyObject *object)
{
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *number = dtype ? PyDict_GetItem(dtypes, dtype) : NULL;

    Py_XDECREF(dtype);
    return number ? (int)PyLong_AsLong(number) : -1;
}

static int device_of(PyObject *object)
{
    PyObject *number = PyObject_CallMethod(object, "get_device", NULL);
    long device = number ? PyLong_AsLong(number) : -1;

    Py_XDECREF(number);
    return (int)device;
}

tensor_obj *stepaf_py_of_torch(PyObject *object)
{
    PyObject *sizes = NULL, *address = NULL;
    int64_t shape[STEPAF_MAX_DIMS];
    struct hold *hold = NULL;
    tensor_obj *tensor = NULL;

    if ((!tensor_type && !find_torch()) || (PyObject *)Py_TYPE(object) != tensor_type)
        return NULL;
    int dtype = number_of_dtype(object);
    int is_cuda = attribute(object, "is_cuda", false), is_host = attribute(object, "is_cpu", false);
    if (dtype < 0 || is_cuda + is_host != 1 || attribute(object, "requires_grad", false) ||
        attribute(object, "is_contiguous", true) != 1)
        goto out;
    sizes = PyObject_GetAttrString(object, "shape");
    address = sizes ? PyObject_CallMethod(object, "data_ptr", NULL) : NULL;
    int ndim =
        address && PyTuple_Size(sizes) <= STEPAF_MAX_DIMS ? stepaf_py_shape(sizes, shape) : -1;
    size_t bytes = LIB(dtype_bytes)((stepaf_dtype_t)dtype);
    for (int i = 0; i < ndim; i++)
        bytes *= (size_t)shape[i];
    hold = ndim < 0 ? NULL : stepaf_py_hold(HOLD_FOREIGN, NULL);
    if (!hold)
        goto out;
    hold->object = object;
    Py_INCREF(object);
    tensor = stepaf_py_tensor(hold, PyLong_AsVoidPtr(address), bytes, dtype, ndim, shape,
                              STEPAF_MEM_HOST);
    stepaf_py_hold_drop(hold);
    if (tensor && is_cuda) {
        tensor->mem_kind = STEPAF_MEM_CUDA;
        tensor->device = device_of(object);
    }
out:
    Py_XDECREF(address);
    Py_XDECREF(sizes);
    if (!tensor)
        PyErr_Clear(); /* DLPack reports this in its own words */
    return tensor;
}
