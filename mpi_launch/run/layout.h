/* SPDX-License-Identifier: Apache-2.0 */
/* The number of ranks, and their placement on hosts. */
#ifndef RUN_LAYOUT_H
#define RUN_LAYOUT_H

#include "hosts.h"
#include "launcher.h"
#include "options.h"

struct run_layout {
    struct run_hosts hosts; /* none: the launcher's choice, or this machine */
    int ranks;
    int nodes;    /* 0: the launcher's choice */
    int per_node; /* ranks on each node; 0: not given */
};

/* Make the layout. Returns -1 with a sentence; *layout_p is unchanged then. The caller frees its
 * hosts. */
int run_layout_make(const struct run_options *options, const struct run_launcher *launcher,
                    char *const *environment, struct run_layout *layout_p);

#endif
