/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank of a node belongs: its cores, its GPU, its RDMA devices, and where a progress thread
 * would sit. */
#ifndef RUN_PLACE_H
#define RUN_PLACE_H

#include "options.h"

enum {
    RUN_LIST_MAX = 1024,
    RUN_DEVICE_MAX = 128,
    RUN_WARNINGS_MAX = 3,
    RUN_NICS_MAX = 320,
    RUN_WHY_MAX = 96
};

struct run_place_query {
    enum run_bind bind;
    int devices; /* one GPU for each rank */
    int local;
    int local_ranks;
    int quota;           /* cores' worth of time that the control group leaves; 0: no limit */
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL: not set */
    const char *xml;     /* an hwloc export instead of this machine; NULL: this one */
};

struct run_place {
    char cores[RUN_LIST_MAX];    /* to bind to, as a list; "": not bound */
    char progress[RUN_LIST_MAX]; /* for a progress thread; "": the library's choice */
    char device[RUN_DEVICE_MAX]; /* for CUDA_VISIBLE_DEVICES; "": as it is */
    char nics[RUN_NICS_MAX];     /* for STEPAF_NET_DEVICES; "": the library's choice */
    char nics_why[RUN_WHY_MAX];
    char warning[RUN_WARNINGS_MAX][160];
    int n_warnings;
};

/* Find it. What cannot be had is a warning, and left as it is; -1 with a sentence only if there is
 * no topology to look at. */
int run_place_find(const struct run_place_query *query, struct run_place *place_p);

/* Cores of this machine that this process may run on; at least 1. */
int run_place_count_cores(void);

#endif
