/* SPDX-License-Identifier: Apache-2.0 */
/* Which RDMA devices of a machine are a rank's: the nearest to its GPU, else to its core. */
#ifndef STEPAF_TOPO_NICS_H
#define STEPAF_TOPO_NICS_H

#include <stddef.h>

enum { STEPAF_TOPO_NICS_MAX = 4, STEPAF_TOPO_NIC_NAME = 64, STEPAF_TOPO_WHY = 96 };

struct stepaf_topo_nics_query {
    const char *xml; /* an hwloc export; NULL: this machine */
    const char *gpu; /* PCI address of the rank's GPU; NULL or not there: the core counts */
    int core;        /* one of the rank's; -1: not known */
    /* Devices to choose from, in the order in which they are taken where nothing is known of their
     * places; NULL: those of the machine that have an active port, can be opened, and have reliable
     * connections. */
    const char *const *names;
    size_t n_names;
};

struct stepaf_topo_nics {
    unsigned n; /* 0: there is none */
    char name[STEPAF_TOPO_NICS_MAX][STEPAF_TOPO_NIC_NAME];
    char why[STEPAF_TOPO_WHY]; /* in words, "" where nothing is known of places */
    const char *how;           /* the same in a word or two */
};

/* Choose. What is as near is shared out among the GPUs, or cores, to which it is as near: a GPU
 * gets several devices where there are several for each, a core gets one. Where there are both
 * InfiniBand and Ethernet, it is of the one that the machine has more of. The same query has the
 * same answer in every process of a machine, so that ranks need not talk. Takes milliseconds, on
 * large machines tens of them. */
void stepaf_topo_nics_choose(const struct stepaf_topo_nics_query *query,
                             struct stepaf_topo_nics *nics_p);

/* A core that stands for this rank's place: of a rank that has a few of its own the first, as that
 * stays the same; else the one that it runs on, since ranks that wait for each other run on
 * different ones. -1: not known. */
int stepaf_topo_nics_core(void);

#endif
