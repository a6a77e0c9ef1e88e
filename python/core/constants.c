/* SPDX-License-Identifier: Apache-2.0 */
/* The headers' enumerators, as compiled: Python has no copy of them. */
#include "core.h"

#ifndef STEPAF_PACKAGE_VERSION
#error setup.py passes the version
#endif

struct constant {
    const char *name;
    long long value;
};

static const struct constant statuses[] = {
#define STATUS_ROW(name_, number_, text_) {#name_, number_},
    STEPAF_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
        {NULL, 0},
};

static const struct constant dtypes[] = {
#define DTYPE_ROW(name_, text_, bytes_) {text_, name_},
    STEPAF_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
        {NULL, 0},
};

static const struct constant dtype_bytes[] = {
#define DTYPE_ROW(name_, text_, bytes_) {text_, bytes_},
    STEPAF_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
        {NULL, 0},
};

static const struct constant phases[] = {
#define PHASE_ROW(name_, text_) {text_, name_},
    STEPAF_PHASE_MAP(PHASE_ROW)
#undef PHASE_ROW
        {NULL, 0},
};

static const struct constant numbers[] = {
    {"ATTENTION", STEPAF_ATTENTION},
    {"FFN", STEPAF_FFN},
    {"WORLD_GROUP", STEPAF_GROUP_WORLD},
    {"ATTENTION_GROUP", STEPAF_GROUP_ATTENTION},
    {"FFN_GROUP", STEPAF_GROUP_FFN},
    {"PUSH", STEPAF_PUSH},
    {"PULL", STEPAF_PULL},
    {"HOST", STEPAF_MEM_HOST},
    {"CUDA", STEPAF_MEM_CUDA},
    {"INLINE", STEPAF_PROGRESS_INLINE},
    {"THREAD", STEPAF_PROGRESS_THREAD},
    {"SINGLE", STEPAF_THREADS_SINGLE},
    {"MULTIPLE", STEPAF_THREADS_MULTIPLE},
    {"MEMBER_IN", STEPAF_MEMBER_IN},
    {"MEMBER_SLOW", STEPAF_MEMBER_SLOW},
    {"MEMBER_LOST", STEPAF_MEMBER_LOST},
    {"MEMBER_OUT", STEPAF_MEMBER_OUT},
    {"MEMBER_ASKS", STEPAF_MEMBER_ASKS},
    {"MEMBER_LEAVES", STEPAF_MEMBER_LEAVES},
    {"MEMBER_LEFT", STEPAF_MEMBER_LEFT},
    {"REFUSE_LOST", STEPAF_COMMIT_REFUSE_LOST},
    {"LEAVE_LOST", STEPAF_COMMIT_LEAVE_LOST},
    {"KEEP_OUT", STEPAF_COMMIT_KEEP_OUT},
    {"ADMIT", STEPAF_COMMIT_ADMIT},
    {"SCATTER", STEPAF_PLAN_SCATTER},
    {"STREAM", STEPAF_PLAN_STREAM},
    {"ANY", STEPAF_PLAN_ANY},
    {"MAX_DIMS", STEPAF_MAX_DIMS},
    {"MAX_TENSORS", STEPAF_MAX_TENSORS},
    {"MAX_DEPTH", STEPAF_MAX_DEPTH},
    {NULL, 0},
};

static bool add_map(PyObject *module, const char *name, const struct constant *constants)
{
    PyObject *map = PyDict_New();

    for (; map && constants->name; constants++) {
        PyObject *value = PyLong_FromLongLong(constants->value);
        if (!value || PyDict_SetItemString(map, constants->name, value)) {
            Py_DECREF(map);
            map = NULL;
        }
        Py_XDECREF(value);
    }
    return map && PyModule_AddObject(module, name, map) == 0;
}

bool stepaf_py_add_constants(PyObject *module)
{
    for (const struct constant *number = numbers; number->name; number++)
        if (PyModule_AddIntConstant(module, number->name, (long)number->value))
            return false;
    return add_map(module, "STATUSES", statuses) && add_map(module, "DTYPES", dtypes) &&
           add_map(module, "DTYPE_BYTES", dtype_bytes) && add_map(module, "PHASES", phases) &&
           PyModule_AddStringConstant(module, "built_version", STEPAF_PACKAGE_VERSION) == 0;
}
