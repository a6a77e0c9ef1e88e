/* SPDX-License-Identifier: Apache-2.0 */
/* Release of the interpreter lock, and waits in pieces. */
#include <limits.h>
#include <time.h>

#include "core.h"

enum { PIECE_US = 50000 };

static const char closed_meanwhile[] = "the context was closed during the wait";

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

PyThreadState *stepaf_py_unlock(context_obj *ctx, bool is_long)
{
    ctx->n_inside++;
    ctx->n_long += is_long;
    return PyEval_SaveThread();
}

void stepaf_py_lock(context_obj *ctx, bool is_long, PyThreadState *state)
{
    PyEval_RestoreThread(state);
    ctx->n_inside--;
    ctx->n_long -= is_long;
}

struct waiter stepaf_py_waiter(context_obj *ctx, int64_t timeout_us)
{
    int64_t us = timeout_us < 0 ? ctx->timeout_us : timeout_us;

    return (struct waiter){.ctx = ctx, .deadline_ns = now_ns() + us * 1000};
}

int64_t stepaf_py_piece_us(struct waiter *waiter)
{
    int64_t now = now_ns(), left_us = (waiter->deadline_ns - now) / 1000;
    int64_t piece_us = left_us <= 0 ? 1 : left_us < PIECE_US ? left_us : PIECE_US;

    waiter->early_ns = now + piece_us * 500; /* the library's clock is another one: half of it */
    return piece_us;
}

int stepaf_py_piece_done(const struct waiter *waiter, stepaf_status_t status)
{
    if (status != STEPAF_ERR_TIMEOUT)
        return 1;
    if (waiter->ctx->closing) {
        (void)stepaf_py_refuse(STEPAF_ERR_CANCELED, "%s", closed_meanwhile);
        return -1;
    }
    int64_t now = now_ns();
    if (now >= waiter->deadline_ns || now < waiter->early_ns)
        return 1;
    if (PyErr_CheckSignals())
        return -1;
    if (!waiter->ctx->closing)
        return 0;
    (void)stepaf_py_refuse(STEPAF_ERR_CANCELED, "%s",
                           closed_meanwhile); /* by a handler of a signal */
    return -1;
}

bool stepaf_py_number(PyObject *object, int *number_p)
{
    PyObject *index = PyNumber_Index(object);
    long number = index ? PyLong_AsLong(index) : -1;

    Py_XDECREF(index);
    if (PyErr_Occurred())
        return false;
    if (number < -1 || number > INT_MAX) {
        PyErr_Format(PyExc_OverflowError, "%ld is not the number of a rank or tensor", number);
        return false;
    }
    *number_p = (int)number;
    return true;
}

bool stepaf_py_timeout(PyObject *seconds, int64_t *timeout_us_p)
{
    const double max_s = 1e9; /* three decades */
    double value;

    *timeout_us_p = -1;
    if (!seconds || seconds == Py_None)
        return true;
    value = PyFloat_AsDouble(seconds);
    if (value == -1 && PyErr_Occurred())
        return false;
    if (!(value >= 0)) {
        (void)stepaf_py_refuse(STEPAF_ERR_INVALID, "a timeout of %g s", value);
        return false;
    }
    *timeout_us_p = (int64_t)((value < max_s ? value : max_s) * 1e6);
    if (value > 0 && !*timeout_us_p)
        *timeout_us_p = 1;
    return true;
}
