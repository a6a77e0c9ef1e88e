/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores ranks run on. */
#ifndef PERF_CORES_H
#define PERF_CORES_H

#include <sched.h>
#include <stddef.h>

/* Write @a cpus as a list, "0-3,8"; cut off with "..." where @a capacity ends. */
void perf_cores_list(const cpu_set_t *cpus, char *text, size_t capacity);

/* Bind the calling process, one of @a n on this machine, to a core of its own, if there are as
 * many: the scheduler may else keep two of them that spin on one core for many milliseconds. */
void perf_cores_bind(int rank, int n);

#endif
