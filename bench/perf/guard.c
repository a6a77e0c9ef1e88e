/* SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"

static char guarded[PERF_FAIL_MAX + 32];

static void guard_ends(int signal)
{
    ssize_t written = write(STDERR_FILENO, guarded, strlen(guarded));

    (void)written;
    (void)signal;
    _exit(PERF_EXIT_FAILED);
}

void perf_guard_say(const char *text)
{
    snprintf(guarded, sizeof(guarded), "stepaf_perf: %.*s\n", PERF_FAIL_MAX, text);
}

void perf_guard(unsigned seconds, const char *text)
{
    struct sigaction action = {.sa_handler = guard_ends};

    perf_guard_say(text);
    sigaction(SIGALRM, &action, NULL);
    alarm(seconds);
}

void perf_unguard(void)
{
    alarm(0);
}
