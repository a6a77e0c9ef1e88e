/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <signal.h>

/* Signals that the thread itself causes. If they were blocked, the kernel would end the process,
 * and its handler would never run. */
static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

int stepaf_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t blocked, before;
    int error;

    sigfillset(&blocked);
    for (unsigned i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        sigdelset(&blocked, faults[i]);
    /* A thread inherits the mask of its creator. */
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
