/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of this machine from the kernel's files. This takes some 0.2 ms; loading a whole hwloc tree
 * takes 2 ms on a small machine and far more on a large one, with every rank of a node doing it at
 * once. Every function takes the directory that stands for "/", so that tests can supply their
 * own. */
#ifndef STEPAF_TOPO_SYS_H
#define STEPAF_TOPO_SYS_H

#include <stdbool.h>
#include <stddef.h>

#include "topo/cpus.h"
#include "topo/topo.h"

/* Fill in everything of *topo_p for a process with the affinity mask @a usable (may be empty). */
void stepaf_sys_probe(const char *root, const struct stepaf_cpus *usable,
                      struct stepaf_topo *topo_p);

/* Fill *near_p with the units that share the largest data cache of one of @a own, and @a own
 * itself. If the kernel does not tell of caches, *near_p is @a own. */
void stepaf_sys_near(const char *root, const struct stepaf_cpus *own, struct stepaf_cpus *near_p);

/* Return whether this machine may have a GPU or an RDMA device. Certainty takes hwloc, which reads
 * the configuration of all PCI devices: milliseconds for each in a virtual machine. */
bool stepaf_sys_may_have_devices(const char *root);

/* cgroup.c: return the CPUs' worth of time that the control groups of this process (version 1 or 2,
 * and their parents) leave it, rounded up; 0 if there is no limit. */
int stepaf_sys_cpu_quota(const char *root);

/* sys_read.c: read the beginning of a small file as text. The name is @a root, then @a format.
 * Returns the number of bytes, or -1 if the file cannot be read. */
int stepaf_sys_read(char *text, size_t capacity, const char *root, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
