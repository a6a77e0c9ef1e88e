/* SPDX-License-Identifier: Apache-2.0 */
/* A process that takes its parent's core away: it stops it for a while, as a quota does, or takes
 * the core itself. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "verdict.h"

enum { LOOK_EVERY_US = 200, WAITS_AFTER_US = 500 /* it is about to wait, and then does */ };

/* Take the core that the parent is on, which is bound to it. */
static void take_core(int64_t ns)
{
    int64_t until = hs_now_ns() + ns;
    struct sched_param first = {.sched_priority = 1}, none = {0};

    if (sched_setscheduler(0, SCHED_FIFO, &first))
        return;
    while (hs_now_ns() < until) {
    }
    (void)sched_setscheduler(0, SCHED_OTHER, &none);
}

pid_t vd_stop_fork(int index, bool by_core)
{
    pid_t parent = getpid(), child;
    cpu_set_t core;

    if (by_core) {
        CPU_ZERO(&core);
        CPU_SET(sched_getcpu(), &core);
        (void)sched_setaffinity(0, sizeof(core), &core);
    }
    child = fork();
    if (child)
        return child;
    while (getppid() == parent && !vd_shared->over) {
        int64_t ns = atomic_exchange(&vd_shared->stop_ns[index], 0);
        if (ns)
            hs_sleep_us(WAITS_AFTER_US);
        if (ns && by_core) {
            take_core(ns);
        } else if (ns && !kill(parent, SIGSTOP)) {
            hs_sleep_us(ns / 1000);
            kill(parent, SIGCONT);
        }
        hs_sleep_us(LOOK_EVERY_US);
    }
    _exit(0);
}
