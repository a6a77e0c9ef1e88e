/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1

#include "threads.h"

#include <sched.h>
#include <unistd.h>

int threads_cores(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : (int)cores;
}

int threads_choose(int asked, int ranks)
{
    cpu_set_t cores;
    if (asked > 0)
        return asked;
    int share = threads_cores() / (ranks > 0 ? ranks : 1);
    /* A launcher may have bound this rank to fewer. */
    if (sched_getaffinity(0, sizeof(cores), &cores) == 0 && share > CPU_COUNT(&cores))
        share = CPU_COUNT(&cores);
    return share < 1 ? 1 : share;
}
