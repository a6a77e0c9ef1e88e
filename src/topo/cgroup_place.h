/* SPDX-License-Identifier: Apache-2.0 */
/* Where the control groups of this process are, of version 1 or 2. */
#ifndef STEPAF_TOPO_CGROUP_PLACE_H
#define STEPAF_TOPO_CGROUP_PLACE_H

#include <limits.h>
#include <stdbool.h>

/* Where one hierarchy is mounted, and where in it this process is. */
struct stepaf_cgroup {
    int version;
    char mount[PATH_MAX / 2];
    char group[PATH_MAX / 2]; /* below the mount; "" is the mount itself */
};

/* Find the group that has @a controller, such as "cpu", in the hierarchy of @a version. 1; 0: this
 * process is in none of that kind, or the system does not tell; -1: it is, and where that is
 * mounted is not to be seen. */
int stepaf_cgroup_find(const char *root, const char *controller, int version,
                       struct stepaf_cgroup *cgroup_p);

/* Go to the group above. False: there is none. */
bool stepaf_cgroup_up(struct stepaf_cgroup *cgroup);

#endif
