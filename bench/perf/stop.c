/* SPDX-License-Identifier: Apache-2.0 */
#include "stop.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"

/* Launchers pass signals on, so that a signal that was sent once arrives twice. */
#define SAME_NS ((int64_t)500 * 1000000)

static volatile sig_atomic_t asked;
static int64_t asked_ns; /* the handler's alone */

static void note(int number)
{
    int saved_errno = errno;
    int64_t now_ns = perf_now_ns();

    if (!asked) {
        asked_ns = now_ns;
        asked = 1;
    } else if (now_ns - asked_ns > SAME_NS) { /* it is delivered when this returns */
        signal(number, SIG_DFL);
        raise(number);
    }
    errno = saved_errno;
}

void perf_stop_on_signals(void)
{
    struct sigaction action = {.sa_handler = note};

    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int perf_stop_asked(void)
{
    return asked != 0;
}

int perf_stop_agree(struct perf_job *job, int *stop_p)
{
    double stop;

    if (perf_job_max(job, perf_stop_asked(), &stop) != 0)
        return -1;
    *stop_p = stop != 0.0;
    return 0;
}
