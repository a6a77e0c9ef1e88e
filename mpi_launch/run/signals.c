/* SPDX-License-Identifier: Apache-2.0 */
#include "signals.h"

#include <stddef.h>
#include <sys/signalfd.h>

int run_signals_open(sigset_t *before_p)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t caught;

    sigemptyset(&caught);
    sigaddset(&caught, SIGCHLD);
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        struct sigaction action;
        /* A blocked signal is queued even if it is ignored. */
        if (sigaction(ends[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&caught, ends[i]);
    }
    sigprocmask(SIG_BLOCK, &caught, before_p);
    return signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
}
