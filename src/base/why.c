/* SPDX-License-Identifier: Apache-2.0 */
#include "base/why.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static _Thread_local char text[160];

static const char *limit(int error, int resource, const char *what, const char *command)
{
    struct rlimit own;

    if (getrlimit(resource, &own) || own.rlim_cur == RLIM_INFINITY)
        return strerror(error);
    snprintf(text, sizeof text, "%s: this process may have no more than %llu %s (%s)",
             strerror(error), (unsigned long long)own.rlim_cur, what, command);
    return text;
}

const char *stepaf_why(int error)
{
    switch (error) {
    case EMFILE:
        return limit(error, RLIMIT_NOFILE, "open files", "ulimit -n");
    case ETOOMANYREFS: /* of all processes of the user */
        return limit(error, RLIMIT_NOFILE, "descriptors in transit to other processes",
                     "ulimit -n");
    case EFBIG:
        return limit(error, RLIMIT_FSIZE, "bytes in a file", "ulimit -f");
    case ENFILE:
        return "Too many open files on this machine (/proc/sys/fs/file-max)";
    default:
        return strerror(error);
    }
}
