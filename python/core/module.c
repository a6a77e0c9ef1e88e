/* SPDX-License-Identifier: Apache-2.0 */
/* The module stepaf._core. */
#include "core.h"

PyTypeObject *stepaf_py_context_type;
PyObject *stepaf_py_hooks;

PyObject *stepaf_py_hook(const char *name, PyObject *args)
{
    PyObject *hook = args ? PyDict_GetItemString(stepaf_py_hooks, name) : NULL;
    PyObject *made = NULL;

    if (hook)
        made = PyObject_Call(hook, args, NULL);
    else if (args)
        PyErr_Format(PyExc_RuntimeError, "no hook %s", name);
    Py_XDECREF(args);
    return made;
}

static PyObject *version(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (!stepaf_py_lib.version_)
        return PyErr_Format(PyExc_RuntimeError, "no library is loaded");
    return PyUnicode_FromString(stepaf_py_lib.version_());
}

static PyObject *status_text(PyObject *module, PyObject *status)
{
    long number = PyLong_AsLong(status);
    (void)module;

    if (number == -1 && PyErr_Occurred())
        return NULL;
    return Py_BuildValue("(ss)", LIB(status_name)((stepaf_status_t)number),
                         LIB(status_text)((stepaf_status_t)number));
}

/* _raise(status): for tests, raise the exception of a call with this status. */
static PyObject *raise_status(PyObject *module, PyObject *status)
{
    long number = PyLong_AsLong(status);
    (void)module;

    return number == -1 && PyErr_Occurred() ? NULL : stepaf_py_raise_plain((stepaf_status_t)number);
}

static PyMethodDef functions[] = {
    {"load", stepaf_py_load, METH_O, "Load the library at a path; returns where it is."},
    {"set_errors", stepaf_py_set_errors, METH_VARARGS, NULL},
    {"version", version, METH_NOARGS, NULL},
    {"status_text", status_text, METH_O, NULL},
    {"raise_status", raise_status, METH_O, NULL},
    {"measure", stepaf_py_measure, METH_VARARGS, NULL},
    {"as_tensor", stepaf_py_as_tensor, METH_O, NULL},
    {"wait_any", METHOD(stepaf_py_wait_any), METH_VARARGS | METH_KEYWORDS, NULL},
    {"respond_many", METHOD(stepaf_py_respond_many), METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

static bool add_type(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **type_p)
{
    PyObject *type = PyType_FromSpec(spec);

    if (!type)
        return false;
    *type_p = (PyTypeObject *)type;
    Py_INCREF(type);
    return PyModule_AddObject(module, name, type) == 0;
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "stepaf._core",
                                        .m_size = -1, .m_methods = functions};

PyObject *stepaf_py_no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)type;
    (void)args;
    (void)kwargs;
    PyErr_SetString(PyExc_TypeError, "only contexts and plans create objects of this type");
    return NULL;
}

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    bool done;

    stepaf_py_hooks = PyDict_New();
    done = module && stepaf_py_hooks &&
           add_type(module, "Context", &stepaf_py_context_spec, &stepaf_py_context_type) &&
           add_type(module, "Plan", &stepaf_py_plan_spec, &stepaf_py_plan_type) &&
           add_type(module, "Request", &stepaf_py_request_spec, &stepaf_py_request_type) &&
           add_type(module, "Batch", &stepaf_py_batch_spec, &stepaf_py_batch_type) &&
           add_type(module, "Tensor", &stepaf_py_tensor_spec, &stepaf_py_tensor_type) &&
           stepaf_py_add_constants(module);
    Py_XINCREF(stepaf_py_hooks);
    if (done && PyModule_AddObject(module, "hooks", stepaf_py_hooks) == 0)
        return module;
    Py_XDECREF(module);
    return NULL;
}
