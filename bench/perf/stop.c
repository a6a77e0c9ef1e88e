/* SPDX-License-Identifier: Apache-2.0 */
#include "stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked;

static void note(int signal)
{
    (void)signal;
    asked = 1;
}

void perf_stop_on_signals(void)
{
    struct sigaction action = {.sa_handler = note};

    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int perf_stop_asked(void)
{
    return asked != 0;
}
