/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes the kernel allows to access this process's pages. */
#ifndef STEPAF_TRANSPORT_SHM_ATTACH_H
#define STEPAF_TRANSPORT_SHM_ATTACH_H

#include <stdbool.h>

/* Return the value of Yama's /proc/sys/kernel/yama/ptrace_scope; 0 also if there is no Yama. */
int stepaf_shm_ptrace_scope(const char *path);

/* Where @a scope is 1, allow all processes of this user to access this process's pages until the
 * matching disallow: Yama admits one process with its descendants, or all, and there are several
 * peers. Counted, for the contexts of a process. Return whether there is anything to disallow. */
bool stepaf_shm_attach_allow(int scope);
void stepaf_shm_attach_disallow(void);

#endif
