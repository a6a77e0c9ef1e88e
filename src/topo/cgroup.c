/* SPDX-License-Identifier: Apache-2.0 */
/* How much processor time the control groups leave this process. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/sys.h"

/* Both /proc files are read whole; a longer mountinfo loses its end, and with it perhaps a limit,
 * never correctness. */
enum { TABLE_MAX = 64 * 1024 };

/* Where one hierarchy is mounted, and where in it this process is. */
struct place {
    char mount[PATH_MAX / 2];
    char group[PATH_MAX / 2]; /* below the mount; "" is the mount itself */
};

/* Is @a word one of the comma-separated words of @a list? */
static int list_has(const char *list, const char *word)
{
    size_t bytes = strlen(word);
    for (;;) {
        size_t n = strcspn(list, ",");
        if (n == bytes && memcmp(list, word, n) == 0)
            return 1;
        if (list[n] == '\0')
            return 0;
        list += n + 1;
    }
}

/* Find this process's group in the text of /proc/self/cgroup, lines "number:controllers:path":
 * version 2 has no controllers there. Cuts up @a table. */
static const char *find_group(char *table, int version)
{
    char *rest = table;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *number = strsep(&line, ":");
        char *controllers = strsep(&line, ":");
        if (!number || !controllers || !line)
            continue;
        if (version == 2 ? !*controllers : list_has(controllers, "cpu"))
            return line;
    }
    return NULL;
}

/* Find the hierarchy's mount in the text of /proc/self/mountinfo, lines
 * "id parent major:minor root mount options ... - type source super-options". Cuts up @a table. */
static int find_mount(char *table, int version, const char **root_p, const char **mount_p)
{
    char *rest = table;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *tail = strstr(line, " - ");
        if (!tail)
            continue;
        *tail = '\0';
        tail += strlen(" - ");
        const char *type = strsep(&tail, " ");
        strsep(&tail, " ");
        if (strcmp(type, version == 2 ? "cgroup2" : "cgroup") != 0 ||
            (version == 1 && (!tail || !list_has(tail, "cpu"))))
            continue;
        for (int skip = 0; skip < 3; skip++)
            strsep(&line, " ");
        *root_p = strsep(&line, " ");
        *mount_p = strsep(&line, " ");
        if (*root_p && *mount_p)
            return 1;
    }
    return 0;
}

/* A container may see its own group mounted as the hierarchy's root, while /proc shows the path
 * from the machine's root: take the mounted part off. */
static const char *below_mount(const char *group, const char *mounted_root)
{
    size_t bytes = strlen(mounted_root);
    if (strcmp(mounted_root, "/") == 0)
        return group;
    if (strncmp(group, mounted_root, bytes) == 0 && (group[bytes] == '/' || group[bytes] == '\0'))
        return group + bytes;
    return "";
}

static int find_hierarchy(const char *root, int version, char *table, struct place *place_p)
{
    const char *mounted_root;
    const char *mount;
    char group[PATH_MAX / 2];

    if (stepaf_sys_read(table, TABLE_MAX, root, "/proc/self/cgroup") <= 0)
        return 0;
    const char *found = find_group(table, version);
    if (!found || strlen(found) >= sizeof group)
        return 0;
    strcpy(group, found);

    if (stepaf_sys_read(table, TABLE_MAX, root, "/proc/self/mountinfo") <= 0 ||
        !find_mount(table, version, &mounted_root, &mount) ||
        strlen(mount) >= sizeof place_p->mount)
        return 0;
    strcpy(place_p->mount, mount);
    strcpy(place_p->group, below_mount(group, mounted_root));
    return 1;
}

/* Processors of one group, rounded up; 0 for no limit. The files are "max 100000" or
 * "150000 100000" in version 2, a file each (-1 for none) in version 1. */
static int group_quota(const char *root, int version, const struct place *place)
{
    const char *mount = place->mount;
    const char *group = place->group;
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

/* A group's limit holds for all below it, so that the smallest on the way up counts. */
static int hierarchy_quota(const char *root, int version, char *table)
{
    struct place place;
    int limit = 0;
    if (!find_hierarchy(root, version, table, &place))
        return 0;
    for (;;) {
        limit = smaller_limit(limit, group_quota(root, version, &place));
        char *slash = strrchr(place.group, '/');
        if (!slash)
            return limit;
        *slash = '\0';
    }
}

int stepaf_sys_cpu_quota(const char *root)
{
    char *table = malloc(TABLE_MAX);
    if (!table)
        return 0;
    int limit = smaller_limit(hierarchy_quota(root, 1, table), hierarchy_quota(root, 2, table));
    free(table);
    return limit;
}
