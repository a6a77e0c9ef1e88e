/* SPDX-License-Identifier: Apache-2.0 */
/* Python's stable ABI, as of 3.9. Two parts of it are in its headers only since 3.11, although
 * older versions have them: buffers, whose layout has not changed since 3.3, and fast calls. */
#ifndef STEPAF_PY_LIMITED_H
#define STEPAF_PY_LIMITED_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

#if defined(Py_LIMITED_API) && Py_LIMITED_API + 0 < 0x030b0000
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len;
    Py_ssize_t itemsize;
    int readonly;
    int ndim;
    char *format;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    Py_ssize_t *suboffsets;
    void *internal;
} Py_buffer;

PyAPI_FUNC(int) PyObject_CheckBuffer(PyObject *obj);
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *obj, Py_buffer *view, int flags);
PyAPI_FUNC(int) PyBuffer_IsContiguous(const Py_buffer *view, char fort);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);

#ifndef Py_bf_getbuffer
#define Py_bf_getbuffer 1
#define Py_bf_releasebuffer 2
#endif
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008
#define PyBUF_STRIDES (0x0010 | PyBUF_ND)
#endif

#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

/* A method with keywords that receives its arguments without a tuple. */
#define FAST_METHOD (METH_FASTCALL | METH_KEYWORDS)
#define METHOD(function_) ((PyCFunction)(void (*)(void))(function_))

/* Python expects names of arguments without const, but does not write to them. */
#define stepaf_py_parse(args_, kwargs_, format_, names_, ...)                                \
    PyArg_ParseTupleAndKeywords((args_), (kwargs_), (format_), (char **)(uintptr_t)(names_), \
                                __VA_ARGS__)

#endif
