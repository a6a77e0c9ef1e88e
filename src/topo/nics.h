/* SPDX-License-Identifier: Apache-2.0 */
/* Choose the RDMA devices of a rank: the nearest to its GPU, or if it has none to its core. */
#ifndef STEPAF_TOPO_NICS_H
#define STEPAF_TOPO_NICS_H

#include <stddef.h>

enum { STEPAF_TOPO_NICS_MAX = 4, STEPAF_TOPO_NIC_NAME = 64, STEPAF_TOPO_WHY = 96 };

struct stepaf_topo_nics_query {
    const char *xml; /* an hwloc export; NULL: this machine */
    const char *gpu; /* PCI address of the rank's GPU; NULL or not there: the core counts */
    int core;        /* a core of the rank; -1: not known */
    /* Devices to choose from, in order of use where their places are not known. NULL: the machine's
     * devices that have an active port, can be opened, and have reliable connections. */
    const char *const *names;
    size_t n_names;
};

struct stepaf_topo_nics {
    unsigned n; /* 0: no device */
    char name[STEPAF_TOPO_NICS_MAX][STEPAF_TOPO_NIC_NAME];
    char why[STEPAF_TOPO_WHY]; /* in words; "" if no places are known */
    const char *how;           /* the same in a word or two */
};

/* Choose devices. Equally near devices are shared out among the GPUs, or cores, that are equally
 * near to them: a GPU gets several devices if there are several for each, a core gets one. If there
 * are both InfiniBand and Ethernet, the devices are of the kind that the machine has more of. The
 * same query has the same result in every process of a machine, so ranks need not communicate.
 * Takes milliseconds, on large machines tens of them. */
void stepaf_topo_nics_choose(const struct stepaf_topo_nics_query *query,
                             struct stepaf_topo_nics *nics_p);

/* Return a core that stands for this rank's place; -1 if not known. A rank with a few cores of its
 * own gets the first, which stays the same. Otherwise it is the core that the rank runs on, since
 * ranks that wait for each other run on different ones. */
int stepaf_topo_nics_core(void);

#endif
