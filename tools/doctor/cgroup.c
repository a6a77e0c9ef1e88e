/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the control groups that this process is in, of version 1 or 2. The library reads its quota in
 * topo/cgroup.c, where what cannot be read is no limit; here it has to be told apart. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

enum { TABLE = 64 * 1024, PLACE = PATH_MAX / 4 };

struct place {
    int version;
    char mount[PLACE];
    char group[PLACE]; /* below the mount; "" is the mount itself */
};

static int has_word(const char *list, const char *word)
{
    size_t bytes = strlen(word);

    for (;;) {
        size_t n = strcspn(list, ",");
        if (n == bytes && strncmp(list, word, n) == 0)
            return 1;
        if (!list[n])
            return 0;
        list += n + 1;
    }
}

/* Lines "number:controllers:path". The path of @a controller, of version 2 if it is "". */
static int find_group(char *table, const char *controller, char *group)
{
    for (char *line, *rest = table; (line = strsep(&rest, "\n"));) {
        char *number = strsep(&line, ":");
        char *controllers = strsep(&line, ":");
        if (!number || !controllers || !line || strlen(line) >= PLACE)
            continue;
        if (*controller ? has_word(controllers, controller) : !*controllers) {
            strcpy(group, line);
            return 1;
        }
    }
    return 0;
}

/* Lines "id parent device root mount options ... - type source options". */
static int find_mount(char *table, const char *controller, struct place *place)
{
    for (char *line, *rest = table; (line = strsep(&rest, "\n"));) {
        char *tail = strstr(line, " - ");
        if (!tail)
            continue;
        *tail = '\0';
        tail += strlen(" - ");
        const char *type = strsep(&tail, " ");
        strsep(&tail, " ");
        if (strcmp(type, *controller ? "cgroup" : "cgroup2") != 0 ||
            (*controller && (!tail || !has_word(tail, controller))))
            continue;
        for (int i = 0; i < 3; i++)
            strsep(&line, " ");
        const char *root = strsep(&line, " ");
        const char *mount = strsep(&line, " ");
        if (!root || !mount || strlen(mount) >= PLACE)
            continue;
        strcpy(place->mount, mount);
        /* A container has its own group mounted, while the path is that of the machine. */
        size_t bytes = strcmp(root, "/") == 0 ? 0 : strlen(root);
        int is_below = strncmp(place->group, root, bytes) == 0 &&
                       (!bytes || place->group[bytes] == '/' || !place->group[bytes]);
        memmove(place->group, is_below ? place->group + bytes : "",
                is_below ? strlen(place->group + bytes) + 1 : 1);
        if (strcmp(place->group, "/") == 0)
            *place->group = '\0';
        return 1;
    }
    return 0;
}

/* A controller that a hierarchy of version 1 has is in no other. */
static int find_place(const struct doctor *doctor, const char *controller, struct place *place)
{
    char *table = malloc(TABLE);
    int found = 0;

    for (int version = 1; table && !found && version <= 2; version++) {
        const char *word = version == 1 ? controller : "";
        place->version = version;
        if (doctor_read(doctor, table, TABLE, "/proc/self/cgroup") <= 0)
            break;
        found = find_group(table, word, place->group);
        if (found && (doctor_read(doctor, table, TABLE, "/proc/self/mountinfo") <= 0 ||
                      !find_mount(table, word, place)))
            break;
    }
    found = found && *place->mount;
    free(table);
    return found;
}

int doctor_read_cgroup(const struct doctor *doctor, const char *controller, int level,
                       const char *name_v1, const char *name_v2, char *text, size_t capacity)
{
    struct place place = {0};

    *text = '\0';
    /* A mount that shows other groups than this one's says nothing of it. */
    if (!find_place(doctor, controller, &place) ||
        !doctor_exists(doctor, "%s%s/cgroup.procs", place.mount, place.group))
        return -1;
    for (int i = 0; i < level; i++) {
        char *slash = strrchr(place.group, '/');
        if (!slash)
            return 0;
        *slash = '\0';
    }
    const char *name = place.version == 1 ? name_v1 : name_v2;
    if (doctor_read(doctor, text, capacity, "%s%s/%s", place.mount, place.group, name) < 0 &&
        doctor_exists(doctor, "%s%s/%s", place.mount, place.group, name))
        return -1;
    /* Only a group that is no root, and has the controller on, has such a file. */
    return 1;
}
