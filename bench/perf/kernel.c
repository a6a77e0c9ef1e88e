/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* FNV-1a. */
static const uint64_t hash_start = 14695981039346656037u;
static const uint64_t hash_factor = 1099511628211u;

uint64_t perf_kernel_hash(uint64_t hash, const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * hash_factor;
    return hash;
}

uint64_t perf_kernel_id(const char *kind)
{
    char boot_id[64] = "";
    char path[64];
    struct stat namespace = {0};
    uint64_t hash;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        ssize_t n = read(fd, boot_id, sizeof(boot_id) - 1);

        boot_id[n > 0 ? n : 0] = '\0';
        close(fd);
    }
    hash = perf_kernel_hash(hash_start, boot_id);
    snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
    if (stat(path, &namespace) == 0)
        hash = (hash ^ namespace.st_ino) * hash_factor;
    return hash;
}
