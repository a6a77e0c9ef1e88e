/* SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"

/* Delay of a failure's report: if the other ranks fail with this one, all first agree on one
 * sentence. */
enum { SAY_S = 1 };

static char guarded[PERF_FAIL_MAX + 32];
static volatile sig_atomic_t seconds_more; /* after the sentence */

static void guard_ends(int signal)
{
    ssize_t written = write(STDERR_FILENO, guarded, strlen(guarded));

    (void)written;
    (void)signal;
    if (seconds_more == 0)
        _exit(PERF_EXIT_FAILED);
    guarded[0] = '\0';
    alarm((unsigned)seconds_more);
    seconds_more = 0;
}

static void set_guard(unsigned seconds, unsigned more, const char *text)
{
    struct sigaction action = {.sa_handler = guard_ends, .sa_flags = SA_RESTART};

    alarm(0);
    snprintf(guarded, sizeof(guarded), "stepaf_perf: %.*s\n", PERF_FAIL_MAX, text);
    seconds_more = (sig_atomic_t)more;
    sigaction(SIGALRM, &action, NULL);
    alarm(seconds);
}

void perf_guard(unsigned seconds, const char *text)
{
    set_guard(seconds, 0, text);
}

void perf_guard_failed(unsigned seconds, const char *text)
{
    set_guard(SAY_S, seconds, text);
}

void perf_unguard(void)
{
    alarm(0);
}
