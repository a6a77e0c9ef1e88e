/* SPDX-License-Identifier: Apache-2.0 */
/* How much CPU time the control groups leave this process. */
#include <stdlib.h>

#include "topo/cgroup_place.h"
#include "topo/sys.h"

/* Return the CPUs of one group, rounded up; 0 for no limit. The files are "max 100000" or "150000
 * 100000" in version 2, a file each (-1 for none) in version 1. */
static int group_quota(const char *root, const struct stepaf_cgroup *cgroup)
{
    int version = cgroup->version;
    const char *mount = cgroup->mount;
    const char *group = cgroup->group;
    char text[64];
    char period_text[64];
    char *end;

    const char *name = version == 2 ? "cpu.max" : "cpu.cfs_quota_us";
    if (stepaf_sys_read(text, sizeof text, root, "%s%s/%s", mount, group, name) <= 0)
        return 0;
    if (version == 1 && stepaf_sys_read(period_text, sizeof period_text, root,
                                        "%s%s/cpu.cfs_period_us", mount, group) <= 0)
        return 0;
    long long quota = strtoll(text, &end, 10);
    long long period = strtoll(version == 2 ? end : period_text, NULL, 10);
    if (quota <= 0 || period <= 0 || quota / period >= STEPAF_CPUS_MAX)
        return 0;
    return (int)(quota / period + (quota % period != 0));
}

static int smaller_limit(int a, int b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Return the smallest limit of a group and its parents: a group's limit holds for all groups below
 * it. */
static int hierarchy_quota(const char *root, int version)
{
    struct stepaf_cgroup cgroup;
    int limit = 0;

    if (stepaf_cgroup_find(root, "cpu", version, &cgroup) <= 0)
        return 0;
    do
        limit = smaller_limit(limit, group_quota(root, &cgroup));
    while (stepaf_cgroup_up(&cgroup));
    return limit;
}

int stepaf_sys_cpu_quota(const char *root)
{
    return smaller_limit(hierarchy_quota(root, 1), hierarchy_quota(root, 2));
}
