/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the control groups of this process. The library, which reads its quota in
 * topo/cgroup.c, treats an unreadable file as no limit; here the two must be distinguished. */
#include <string.h>

#include "doctor.h"
#include "topo/cgroup_place.h"

/* A controller in a hierarchy of version 1 is in no other hierarchy. */
static int find_place(const struct doctor *doctor, const char *controller,
                      struct stepaf_cgroup *place)
{
    int found = 0;

    for (int version = 1; !found && version <= 2; version++)
        found = stepaf_cgroup_find(doctor->root, controller, version, place);
    return found > 0;
}

int doctor_read_cgroup(const struct doctor *doctor, const char *controller, int level,
                       const char *name_v1, const char *name_v2, char *text, size_t capacity)
{
    struct stepaf_cgroup place;

    *text = '\0';
    /* A mount that shows other groups than this process's gives no information. */
    if (!find_place(doctor, controller, &place) ||
        !doctor_exists(doctor, "%s%s/cgroup.procs", place.mount, place.group))
        return -1;
    for (int i = 0; i < level; i++) {
        if (!stepaf_cgroup_up(&place))
            return 0;
    }
    const char *name = place.version == 1 ? name_v1 : name_v2;
    if (doctor_read(doctor, text, capacity, "%s%s/%s", place.mount, place.group, name) < 0 &&
        doctor_exists(doctor, "%s%s/%s", place.mount, place.group, name))
        return -1;
    /* Only a group that is not the root, and has the controller enabled, has such a file. */
    return 1;
}
