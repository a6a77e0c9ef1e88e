/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/cgroup_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/sys.h"

/* Both /proc files are read whole. A longer mountinfo loses its end, and with it perhaps a limit,
 * never correctness. */
enum { TABLE_MAX = 64 * 1024 };

/* Return whether @a word is one of the comma-separated words of @a list. */
static bool list_has(const char *list, const char *word)
{
    size_t bytes = strlen(word);

    for (;;) {
        size_t n = strcspn(list, ",");
        if (n == bytes && memcmp(list, word, n) == 0)
            return true;
        if (list[n] == '\0')
            return false;
        list += n + 1;
    }
}

/* Find this process's group in the text of /proc/self/cgroup, lines "number:controllers:path";
 * version 2 has no controllers there. Cuts up @a table. */
static const char *find_group(char *table, const char *controller, int version)
{
    for (char *line, *rest = table; (line = strsep(&rest, "\n"));) {
        char *number = strsep(&line, ":");
        char *controllers = strsep(&line, ":");
        if (!number || !controllers || !line)
            continue;
        if (version == 2 ? !*controllers : list_has(controllers, controller))
            return line;
    }
    return NULL;
}

/* Find the hierarchy's mount in the text of /proc/self/mountinfo, lines
 * "id parent major:minor root mount options ... - type source super-options". Cuts up @a table. */
static bool find_mount(char *table, const char *controller, int version, const char **root_p,
                       const char **mount_p)
{
    for (char *line, *rest = table; (line = strsep(&rest, "\n"));) {
        char *tail = strstr(line, " - ");
        if (!tail)
            continue;
        *tail = '\0';
        tail += strlen(" - ");
        const char *type = strsep(&tail, " ");
        strsep(&tail, " ");
        if (strcmp(type, version == 2 ? "cgroup2" : "cgroup") != 0 ||
            (version == 1 && (!tail || !list_has(tail, controller))))
            continue;
        for (int skip = 0; skip < 3; skip++)
            strsep(&line, " ");
        *root_p = strsep(&line, " ");
        *mount_p = strsep(&line, " ");
        if (*root_p && *mount_p)
            return true;
    }
    return false;
}

/* Remove the mounted part from the path of the group. A container may see its own group mounted as
 * the hierarchy's root, while /proc shows the path from the machine's root. */
static void take_off(char *group, const char *mounted_root)
{
    size_t bytes = strcmp(mounted_root, "/") == 0 ? 0 : strlen(mounted_root);
    bool is_below = strncmp(group, mounted_root, bytes) == 0 &&
                    (!bytes || group[bytes] == '/' || group[bytes] == '\0');
    const char *below = is_below ? group + bytes : "";

    memmove(group, strcmp(below, "/") == 0 ? "" : below,
            strcmp(below, "/") == 0 ? 1 : strlen(below) + 1);
}

int stepaf_cgroup_find(const char *root, const char *controller, int version,
                       struct stepaf_cgroup *cgroup_p)
{
    char *table = malloc(TABLE_MAX);
    const char *mounted_root, *mount, *group = NULL;
    int found = 0;

    if (table && stepaf_sys_read(table, TABLE_MAX, root, "/proc/self/cgroup") > 0)
        group = find_group(table, controller, version);
    if (!group || strlen(group) >= sizeof cgroup_p->group)
        goto out;
    strcpy(cgroup_p->group, group);
    found = -1;
    if (stepaf_sys_read(table, TABLE_MAX, root, "/proc/self/mountinfo") <= 0 ||
        !find_mount(table, controller, version, &mounted_root, &mount) || !*mount ||
        strlen(mount) >= sizeof cgroup_p->mount)
        goto out;
    cgroup_p->version = version;
    strcpy(cgroup_p->mount, mount);
    take_off(cgroup_p->group, mounted_root);
    found = 1;
out:
    free(table);
    return found;
}

bool stepaf_cgroup_up(struct stepaf_cgroup *cgroup)
{
    char *slash = strrchr(cgroup->group, '/');

    if (slash)
        *slash = '\0';
    return slash != NULL;
}
