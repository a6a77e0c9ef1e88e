/* SPDX-License-Identifier: Apache-2.0 */
/* Signals in calls that wait for other ranks and cannot be made in pieces. A handler may do
 * anything, also with the context, so it runs when the call has returned. Until then signals
 * arrive here through the interpreter's wakeup file descriptor, and those that ask the process
 * to stop end the call. */
#define _GNU_SOURCE 1 /* pipe2 */

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "core.h"

/* Call set_wakeup_fd of the module signal: return the previous file descriptor, or -2 without an
 * exception in a thread that may not call it. */
static int set_wakeup_fd(int fd)
{
    PyObject *module = PyImport_ImportModule("signal");
    PyObject *before = module ? PyObject_CallMethod(module, "set_wakeup_fd", "i", fd) : NULL;
    long number = before ? PyLong_AsLong(before) : -2;

    Py_XDECREF(before);
    Py_XDECREF(module);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return -2;
    }
    return (int)number;
}

/* Read the numbers of the signals that have arrived. */
static void hear(struct signals *signals)
{
    unsigned char numbers[64];
    ssize_t n;

    while ((n = read(signals->fds[0], numbers, sizeof(numbers))) > 0)
        for (ssize_t i = 0; i < n; i++) {
            signals->stops |= numbers[i] == SIGINT || numbers[i] == SIGTERM;
            if (signals->n < sizeof(signals->heard))
                signals->heard[signals->n++] = numbers[i];
        }
}

static int is_stopped(void *arg)
{
    struct signals *signals = arg;

    hear(signals);
    return signals->stops;
}

void stepaf_py_signals_begin(struct signals *signals)
{
    *signals = (struct signals){.fds = {-1, -1}};
    if (pipe2(signals->fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return; /* then the call is not ended */
    signals->before = set_wakeup_fd(signals->fds[1]);
    signals->is_on = signals->before != -2;
    if (signals->is_on)
        LIB(set_interrupt)(is_stopped, signals);
}

bool stepaf_py_signals_end(struct signals *signals)
{
    if (signals->is_on) {
        LIB(set_interrupt)(NULL, NULL);
        (void)set_wakeup_fd(signals->before);
        hear(signals);
        if (signals->before >= 0 && signals->n)
            (void)!write(signals->before, signals->heard, signals->n);
    }
    if (signals->fds[0] >= 0) {
        close(signals->fds[0]);
        close(signals->fds[1]);
    }
    return !PyErr_CheckSignals();
}
