/* SPDX-License-Identifier: Apache-2.0 */
/* Whom the kernel lets at this process's pages. */
#ifndef STEPAF_TRANSPORT_SHM_ATTACH_H
#define STEPAF_TRANSPORT_SHM_ATTACH_H

#include <stdbool.h>

/* What Yama's /proc/sys/kernel/yama/ptrace_scope says: 0 also where there is no Yama. */
int stepaf_shm_ptrace_scope(const char *path);

/* Where @a scope is 1, let all processes of this user at this one's pages until the matching
 * disallow: Yama knows one process with its descendants, or all, and peers are several. Counted,
 * for the contexts of a process. Whether there is anything to disallow. */
bool stepaf_shm_attach_allow(int scope);
void stepaf_shm_attach_disallow(void);

#endif
