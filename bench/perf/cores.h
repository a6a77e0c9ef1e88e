/* SPDX-License-Identifier: Apache-2.0 */
/* The cores that ranks run on. */
#ifndef PERF_CORES_H
#define PERF_CORES_H

#include <sched.h>
#include <stddef.h>

/* Write @a cpus as a list, "0-3,8"; truncated with "..." at @a capacity. */
void perf_cores_list(const cpu_set_t *cpus, char *text, size_t capacity);

/* Bind the calling process, one of @a n on this machine, to a core of its own if there are
 * enough cores: otherwise the scheduler may keep two spinning processes on one core for many
 * milliseconds. */
void perf_cores_bind(int rank, int n);

#endif
