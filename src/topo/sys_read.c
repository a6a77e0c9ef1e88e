/* SPDX-License-Identifier: Apache-2.0 */
/* Read the kernel's files. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "topo/sys.h"

static ssize_t read_file(const char *path, char *text, size_t capacity)
{
    size_t used = 0;
    int fd = stepaf_fd_open(path, O_RDONLY);
    if (fd < 0)
        return -1;
    while (used < capacity) {
        ssize_t n = read(fd, text + used, capacity - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            close(fd);
            return -1;
        }
        if (n == 0)
            break;
        used += (size_t)n;
    }
    close(fd);
    return (ssize_t)used;
}

int stepaf_sys_read(char *text, size_t capacity, const char *root, const char *format, ...)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s", root);
    if (n < 0 || (size_t)n >= sizeof path)
        return -1;
    va_list args;
    va_start(args, format);
    int m = vsnprintf(path + n, sizeof path - (size_t)n, format, args);
    va_end(args);
    if (m < 0 || (size_t)m >= sizeof path - (size_t)n)
        return -1;

    ssize_t bytes = read_file(path, text, capacity - 1);
    if (bytes < 0)
        return -1;
    text[bytes] = '\0';
    return (int)bytes;
}
