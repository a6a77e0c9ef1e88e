/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of the same calls in C, for stepaf.bench: in the same process, by the same library. */
#include <time.h>

#include "core.h"

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static bool append(PyObject *list, int64_t ns)
{
    PyObject *number = PyLong_FromLongLong(ns);
    bool done = number && PyList_Append(list, number) == 0;

    Py_XDECREF(number);
    return done;
}

/* Time one operation: its start, and its wait once it is complete, or the whole wait if @a ready
 * is not set. */
static stepaf_status_t one(const plan_obj *plan, bool ready, int64_t *start_ns_p,
                           int64_t *wait_ns_p)
{
    stepaf_request_h request;
    int64_t t0 = now_ns();
    stepaf_status_t status = LIB(start)(plan->handle, &request);
    int64_t t1 = now_ns();

    if (status)
        return status;
    int64_t end_ns = t1 + plan->ctx->timeout_us * 1000;
    while (ready && LIB(request_peer)(request, 0) == STEPAF_INPROGRESS && now_ns() < end_ns)
        (void)LIB(progress)(plan->ctx->handle);
    int64_t t2 = now_ns();
    status = LIB(wait)(request, STEPAF_TIMEOUT_DEFAULT);
    int64_t t3 = now_ns();
    *start_ns_p = t1 - t0;
    *wait_ns_p = ready ? t3 - t2 : t3 - t0;
    return status;
}

/* Cost of reading the clock, which is not part of the calls. */
static int64_t clock_cost_ns(void)
{
    enum { LOOKS = 1000 };
    int64_t t0 = now_ns(), t1 = t0;

    for (int i = 0; i < LOOKS; i++)
        t1 = now_ns();
    return (t1 - t0) / LOOKS;
}

PyObject *stepaf_py_measure(PyObject *module, PyObject *args)
{
    int64_t cost_ns = clock_cost_ns();
    PyObject *plan, *starts = PyList_New(0), *waits = PyList_New(0);
    stepaf_status_t status = STEPAF_OK;
    Py_ssize_t n;
    int ready;
    (void)module;

    bool done = PyArg_ParseTuple(args, "O!np", stepaf_py_plan_type, &plan, &n, &ready) &&
                stepaf_py_is_open(((plan_obj *)plan)->ctx);
    for (Py_ssize_t i = 0; done && i < n; i++) {
        int64_t start_ns, wait_ns;
        status = one((plan_obj *)plan, ready, &start_ns, &wait_ns);
        if (status)
            (void)stepaf_py_raise(status);
        done = !status && append(starts, start_ns - cost_ns) && append(waits, wait_ns - cost_ns);
    }
    if (done)
        return Py_BuildValue("(NN)", starts, waits);
    Py_XDECREF(starts);
    Py_XDECREF(waits);
    return NULL;
}
