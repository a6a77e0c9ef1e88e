/* SPDX-License-Identifier: Apache-2.0 */
/* The place of a rank on its node: its cores, its GPU, its RDMA devices, and the cores for a
 * progress thread. */
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
    int quota;           /* CPU time that the control group allows, in cores; 0: no limit */
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL: not set */
    const char *xml;     /* an hwloc export instead of this machine; NULL: this one */
};

struct run_place {
    char cores[RUN_LIST_MAX];    /* to bind to, as a list; "": do not bind */
    char progress[RUN_LIST_MAX]; /* for a progress thread; "": the library's choice */
    char device[RUN_DEVICE_MAX]; /* for CUDA_VISIBLE_DEVICES; "": unchanged */
    char nics[RUN_NICS_MAX];     /* for STEPAF_NET_DEVICES; "": the library's choice */
    char nics_why[RUN_WHY_MAX];
    char warning[RUN_WARNINGS_MAX][160];
    int n_warnings;
};

/* Find the place. A part that is not available causes a warning, and is left unchanged; returns
 * -1 with a sentence only if there is no topology. */
int run_place_find(const struct run_place_query *query, struct run_place *place_p);

/* Return the number of this machine's cores that this process may run on; at least 1. */
int run_place_count_cores(void);

#endif
