/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of failures to exceptions, a class for each status; the classes are made in Python. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core.h"

/* {status: class}, and the class for any other status. */
static PyObject *classes, *base_class;

PyObject *stepaf_py_set_errors(PyObject *module, PyObject *args)
{
    PyObject *map, *base;
    (void)module;

    if (!PyArg_ParseTuple(args, "OO", &map, &base))
        return NULL;
    Py_INCREF(map);
    Py_INCREF(base);
    Py_XDECREF(classes);
    Py_XDECREF(base_class);
    classes = map;
    base_class = base;
    Py_RETURN_NONE;
}

PyObject *stepaf_py_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static void *raise_error(const stepaf_error_t *error)
{
    PyObject *status = PyLong_FromLong(error->status);
    PyObject *class = status ? PyObject_GetItem(classes, status) : NULL;

    if (!class) {
        PyErr_Clear();
        class = base_class;
        Py_INCREF(class);
    }
    PyObject *text = stepaf_py_text(error->text);
    PyObject *made = text ? PyObject_CallFunction(class, "Oisiii", text, (int)error->status,
                                                  LIB(phase_name)(error->phase), error->peer_role,
                                                  error->peer_rank, error->peer_world_rank)
                          : NULL;
    Py_XDECREF(text);
    if (made)
        PyErr_SetObject(class, made);
    Py_XDECREF(made);
    Py_DECREF(class);
    Py_XDECREF(status);
    return NULL;
}

void *stepaf_py_raise_plain(stepaf_status_t status)
{
    stepaf_error_t error = {.status = status,
                            .phase = STEPAF_PHASE_NONE,
                            .peer_role = -1,
                            .peer_rank = -1,
                            .peer_world_rank = -1};

    (void)snprintf(error.text, sizeof(error.text), "%s", LIB(status_text)(status));
    return raise_error(&error);
}

void *stepaf_py_raise(stepaf_status_t status)
{
    const stepaf_error_t *error = LIB(last_error)();

    return error->status == status ? raise_error(error) : stepaf_py_raise_plain(status);
}

void *stepaf_py_refuse(stepaf_status_t status, const char *format, ...)
{
    stepaf_error_t error = {.status = status,
                            .phase = STEPAF_PHASE_NONE,
                            .peer_role = -1,
                            .peer_rank = -1,
                            .peer_world_rank = -1};
    va_list args;

    va_start(args, format);
    (void)vsnprintf(error.text, sizeof(error.text), format, args);
    va_end(args);
    return raise_error(&error);
}
