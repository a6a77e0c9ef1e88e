/* SPDX-License-Identifier: Apache-2.0 */
#include "base/quiet.h"

#include <errno.h>
#include <time.h>

void stepaf_quiet_begin(struct stepaf_quiet *quiet)
{
    static const int signals[] = {SIGPIPE, SIGXFSZ};
    int error = errno;
    sigset_t pending;

    sigemptyset(&pending);
    sigpending(&pending);
    sigemptyset(&quiet->ours);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (!sigismember(&pending, signals[i]))
            sigaddset(&quiet->ours, signals[i]);
    pthread_sigmask(SIG_BLOCK, &quiet->ours, &quiet->before);
    errno = error;
}

void stepaf_quiet_end(const struct stepaf_quiet *quiet)
{
    static const struct timespec at_once = {0, 0};
    int error = errno;

    while (sigtimedwait(&quiet->ours, NULL, &at_once) >= 0 || errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
    errno = error;
}
