/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and lookup of the library when the package is imported. */
#include <dlfcn.h>
#include <pthread.h>

#include "core.h"

struct library stepaf_py_lib;
unsigned stepaf_py_forks;

static void forked(void)
{
    stepaf_py_forks++;
}

/* Every field of the table is an address, in the order of the map. */
static const char *const names[] = {
#define LIBRARY_NAME(name_) "stepaf_" #name_,
    LIBRARY_MAP(LIBRARY_NAME)
#undef LIBRARY_NAME
        "stepaf_version",
};

_Static_assert(sizeof(struct library) == sizeof(names) / sizeof(names[0]) * sizeof(void *),
               "a name for each field");

static PyObject *os_error(const char *text)
{
    PyErr_SetString(PyExc_OSError, text ? text : "unknown failure of the loader");
    return NULL;
}

PyObject *stepaf_py_load(PyObject *module, PyObject *path)
{
    union {
        struct library functions;
        void *symbols[sizeof(names) / sizeof(names[0])];
    } found;
    PyObject *bytes = NULL;
    Dl_info info;
    (void)module;

    /* Subinterpreters would share the exception classes, which end with the interpreter that
     * made them. */
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError, "stepaf supports only the main interpreter");
        return NULL;
    }
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    void *library = dlopen(PyBytes_AsString(bytes), RTLD_NOW | RTLD_LOCAL);
    Py_DECREF(bytes);
    if (!library)
        return os_error(dlerror());
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        found.symbols[i] = dlsym(library, names[i]);
        if (!found.symbols[i]) {
            PyErr_Format(PyExc_OSError, "the library has no function %s: it is of another version",
                         names[i]);
            dlclose(library);
            return NULL;
        }
    }
    if (!stepaf_py_lib.version_ && pthread_atfork(NULL, NULL, forked))
        return PyErr_NoMemory();
    stepaf_py_lib = found.functions;
    /* The library is never closed: contexts may have threads in it. */
    if (!dladdr(found.symbols[0], &info) || !info.dli_fname)
        Py_RETURN_NONE;
    return PyUnicode_DecodeFSDefault(info.dli_fname);
}
