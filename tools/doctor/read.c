/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files below the root, none of which is trusted. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"
#include "topo/sys.h"

/* Make a path below the root; returns false if it is too long. */
static int make_path(const struct doctor *doctor, char *path, const char *format, va_list args)
{
    int n = snprintf(path, PATH_MAX, "%s", doctor->root);
    int m;

    if (n < 0 || n >= PATH_MAX)
        return 0;
    m = vsnprintf(path + n, (size_t)(PATH_MAX - n), format, args);
    return m >= 0 && m < PATH_MAX - n;
}

int doctor_read(const struct doctor *doctor, char *text, size_t capacity, const char *format, ...)
{
    char path[PATH_MAX];
    va_list args;
    int fits;

    *text = '\0';
    va_start(args, format);
    fits = make_path(doctor, path, format, args);
    va_end(args);
    int bytes = fits ? stepaf_sys_read(text, capacity, "", "%s", path) : -1;
    size_t n = bytes >= 0 ? strlen(text) : 0;
    if (bytes < 0 || n != (size_t)bytes) { /* no file of the kernel contains a NUL */
        *text = '\0';
        return -1;
    }
    while (n > 0 && strchr(" \t\n", text[n - 1]))
        text[--n] = '\0';
    return (int)n;
}

int doctor_parse(const char *text, long long *number_p)
{
    char *end;

    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno)
        return 0;
    *number_p = number;
    return 1;
}

int doctor_read_number(const struct doctor *doctor, long long *number_p, const char *format, ...)
{
    char path[PATH_MAX];
    char text[64];
    va_list args;
    int fits;

    va_start(args, format);
    fits = vsnprintf(path, sizeof path, format, args) < (int)sizeof path;
    va_end(args);
    return fits && doctor_read(doctor, text, sizeof text, "%s", path) > 0 &&
           doctor_parse(text, number_p);
}

int doctor_exists(const struct doctor *doctor, const char *format, ...)
{
    char path[PATH_MAX];
    va_list args;
    int fits;

    va_start(args, format);
    fits = make_path(doctor, path, format, args);
    va_end(args);
    return fits && access(path, F_OK) == 0;
}

int doctor_read_link(const struct doctor *doctor, char *name, size_t capacity, const char *format,
                     ...)
{
    char path[PATH_MAX];
    char target[PATH_MAX];
    va_list args;
    int fits;

    *name = '\0';
    va_start(args, format);
    fits = make_path(doctor, path, format, args);
    va_end(args);
    ssize_t n = fits ? readlink(path, target, sizeof target - 1) : -1;
    if (n <= 0)
        return 0;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(name, capacity, "%s", slash ? slash + 1 : target);
    doctor_clean(name);
    return 1;
}

static int is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._:@+-";

    return *name && *name != '.' && *name != '-' && strlen(name) < DOCTOR_NAME &&
           !name[strspn(name, allowed)];
}

static int compare_names(const void *one, const void *other)
{
    return strverscmp(one, other);
}

static int list_names(const struct doctor *doctor, doctor_wants_fn *wants,
                      struct doctor_names *names_p, const char *format, va_list args)
{
    char path[PATH_MAX];

    names_p->n = names_p->n_cut = 0;
    DIR *directory = make_path(doctor, path, format, args) ? opendir(path) : NULL;
    if (!directory)
        return 0;
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (!is_name(entry->d_name) || (wants && !wants(doctor, entry->d_name)))
            continue;
        if (names_p->n < DOCTOR_NAMES)
            strcpy(names_p->name[names_p->n++], entry->d_name); /* is_name: the name fits */
        else
            names_p->n_cut++;
    }
    closedir(directory);
    qsort(names_p->name, names_p->n, sizeof names_p->name[0], compare_names);
    return 1;
}

int doctor_list(const struct doctor *doctor, struct doctor_names *names_p, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int is_there = list_names(doctor, NULL, names_p, format, args);
    va_end(args);
    return is_there;
}

int doctor_list_if(const struct doctor *doctor, doctor_wants_fn *wants,
                   struct doctor_names *names_p, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int is_there = list_names(doctor, wants, names_p, format, args);
    va_end(args);
    return is_there;
}

int doctor_read_field(const struct doctor *doctor, char *value, size_t capacity, const char *path,
                      const char *name)
{
    char text[16384];
    size_t bytes = strlen(name);
    char *rest = text;

    *value = '\0';
    if (doctor_read(doctor, text, sizeof text, "%s", path) <= 0)
        return 0;
    for (char *line; (line = strsep(&rest, "\n"));) {
        size_t blanks = strncmp(line, name, bytes) == 0 ? strspn(line + bytes, " \t") : 0;
        if (strncmp(line, name, bytes) != 0 || line[bytes + blanks] != ':')
            continue;
        line += bytes + blanks + 1;
        snprintf(value, capacity, "%s", line + strspn(line, " \t"));
        return *value != '\0';
    }
    return 0;
}

static int parse_limit(const char *text, long long *limit_p)
{
    if (strcmp(text, "unlimited") == 0) {
        *limit_p = -1;
        return 1;
    }
    return doctor_parse(text, limit_p) && *limit_p >= 0;
}

int doctor_read_limit(const struct doctor *doctor, const char *name, long long *soft_p,
                      long long *hard_p)
{
    char text[4096];
    char *rest = text;

    if (doctor_read(doctor, text, sizeof text, "/proc/self/limits") <= 0)
        return 0;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char soft[32];
        char hard[32];
        if (strncmp(line, name, strlen(name)) == 0)
            return sscanf(line + strlen(name), "%31s %31s", soft, hard) == 2 &&
                   parse_limit(soft, soft_p) && parse_limit(hard, hard_p);
    }
    return 0;
}

int doctor_is_test(const struct doctor *doctor)
{
    return *doctor->root != '\0';
}

int doctor_read_tried(const struct doctor *doctor, char *text, size_t capacity, const char *name)
{
    return doctor_read(doctor, text, capacity, "/tried/%s", name) >= 0;
}
