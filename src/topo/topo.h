/* SPDX-License-Identifier: Apache-2.0 */
/* The machine as this process sees it, and binding of threads to cores. */
#ifndef STEPAF_TOPO_TOPO_H
#define STEPAF_TOPO_TOPO_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/types.h>

#define STEPAF_TOPO_NAME_MAX 64
#define STEPAF_TOPO_HOST_MAX (HOST_NAME_MAX + 1) /* HOST_NAME_MAX lacks the terminating zero */

/* Facts of this process's place. */
struct stepaf_topo {
    char host[STEPAF_TOPO_HOST_MAX];
    uint64_t node_id;  /* same for processes that can share memory files and process ids:
                            * a hash of the host name, the boot id and the PID
                            * namespace; never 0 */
    int cores_usable;  /* processing units that this process may run on (affinity and cgroup
                            * quota, rounded up); at least 1 */
    int cores_machine; /* processing units of the machine */
    int numa_nodes;    /* of the machine; at least 1 */
    size_t l2_bytes;   /* of one core; 0 if unknown */
    size_t l3_bytes;   /* shared by this process's cores; 0 if unknown */
    char binding[128]; /* cores of the affinity mask as a list: "0-3,8" */
};

/* Probe the machine. @a xml: NULL for this machine, or the name of an hwloc XML export (tests).
 * Facts that cannot be found have the neutral values above. Fails only with STEPAF_ERR_NO_MEMORY
 * or, for a bad xml, STEPAF_ERR_INVALID. */
stepaf_status_t stepaf_topo_probe(const char *xml, struct stepaf_topo *topo_p);

/* Name the GPUs (PCI addresses) and the RDMA devices ("mlx5_0") near the cores in @a binding, a
 * list; all of them if none is near. "" if there are none; several are separated by commas and cut
 * to @a capacity. Takes milliseconds. @a xml: as above. */
void stepaf_topo_devices(const char *xml, const char *binding, char *gpus_p, char *nics_p,
                         size_t capacity);

/* Bind the calling thread to @a cores ("0-1,4"), or if that is empty to the processing units that
 * share the last-level cache with the units this thread is bound to. Returns STEPAF_ERR_SETTING if
 * @a cores is no list or has no core that this process can be given; STEPAF_ERR_UNSUPPORTED if the
 * machine does not let threads be bound (the thread then runs on where it was). */
stepaf_status_t stepaf_topo_bind_thread(const char *cores);

/* Check a list for stepaf_topo_bind_thread beforehand. Returns STEPAF_ERR_SETTING as there. The
 * thread stays bound as it is. */
stepaf_status_t stepaf_topo_check_cores(const char *cores);

/* Print the tree of packages, caches, cores and, where known, NICs and GPUs, for people. */
void stepaf_topo_print(void *stream);

#endif
