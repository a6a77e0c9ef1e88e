/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of a Slurm step that do not know of each other. */
#ifndef STEPAF_TOOLS_STEP_H
#define STEPAF_TOOLS_STEP_H

#include <stdlib.h>

/* Of a process that no launcher's variables call a rank: the number of processes that srun has
 * started, if there are several, as without --mpi=pmix; else 0. */
static inline long step_strangers(void)
{
    const char *text = getenv("SLURM_STEP_NUM_TASKS");
    long n = text ? strtol(text, NULL, 10) : 0;

    return n > 1 ? n : 0;
}

#endif
