/* SPDX-License-Identifier: Apache-2.0 */
/* Find the control groups of this process, of version 1 or 2. */
#ifndef STEPAF_TOPO_CGROUP_PLACE_H
#define STEPAF_TOPO_CGROUP_PLACE_H

#include <limits.h>
#include <stdbool.h>

/* Where a hierarchy is mounted, and the place of this process in it. */
struct stepaf_cgroup {
    int version;
    char mount[PATH_MAX / 2];
    char group[PATH_MAX / 2]; /* below the mount; "" is the mount itself */
};

/* Find the group with @a controller, such as "cpu", in the hierarchy of @a version. Returns 1 if
 * found; 0 if this process is in no group of that kind, or the system does not tell; -1 if it is in
 * one whose mount cannot be seen. */
int stepaf_cgroup_find(const char *root, const char *controller, int version,
                       struct stepaf_cgroup *cgroup_p);

/* Go to the parent group. Returns false if there is none. */
bool stepaf_cgroup_up(struct stepaf_cgroup *cgroup);

#endif
