/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: limits of locked memory and of memory in total, and page sizes. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "doctor.h"

enum { CAPABILITY_IPC_LOCK = 14 };

static const long long mib = 1 << 20;

/* In a user namespace of its own, a process has capabilities that lift none of the kernel's
 * limits. */
static bool owns_user_namespace(const struct doctor *doctor)
{
    char text[128];
    unsigned long inside, outside, n;

    return doctor_read(doctor, text, sizeof text, "/proc/self/uid_map") > 0 &&
           sscanf(text, "%lu %lu %lu", &inside, &outside, &n) == 3 &&
           (inside != 0 || outside != 0 || n != UINT32_MAX);
}

void doctor_look_memlock(struct doctor *doctor)
{
    struct doctor_names devices;
    long long soft, hard;
    bool lifted =
        doctor_has_capability(doctor, CAPABILITY_IPC_LOCK) > 0 && !owns_user_namespace(doctor);

    doctor_list(doctor, &devices, "/sys/class/infiniband");
    if (!doctor_read_limit(doctor, "Max locked memory", &soft, &hard))
        doctor_say(doctor, DOCTOR_UNKNOWN, "/proc/self/limits does not say it");
    else if (soft < 0)
        doctor_say(doctor, DOCTOR_PASSED, "unlimited");
    else if (lifted)
        doctor_say(doctor, DOCTOR_PASSED, "%lld KiB, but CAP_IPC_LOCK lifts it", soft >> 10);
    else
        doctor_say(doctor, devices.n && soft < 1024 * mib ? DOCTOR_FAILED : DOCTOR_WARNED,
                   "%lld KiB may be locked%s", soft >> 10,
                   devices.n ? ", and there are RDMA devices"
                   : doctor_exists(doctor, "/sys/class")
                       ? "; no RDMA device requires more"
                       : "; whether an RDMA device requires more cannot be read");
    if (doctor->findings[doctor->n - 1].state > DOCTOR_PASSED && hard != soft && hard < 0)
        doctor_mend(doctor, "ulimit -l unlimited");
}

/* Return the smallest limit of the groups; -1 for none, -2 if unknown. */
static long long group_limit(const struct doctor *doctor, const char *controller,
                             const char *name_v1, const char *name_v2, long long most)
{
    long long limit = -1;

    for (int level = 0;; level++) {
        char text[64];
        long long number;
        int more =
            doctor_read_cgroup(doctor, controller, level, name_v1, name_v2, text, sizeof text);
        if (more < 0)
            return -2;
        if (!more)
            return limit;
        if (!*text || strcmp(text, "max") == 0)
            continue;
        if (!doctor_parse(text, &number) || number < 0)
            return -2;
        if (number < most && (limit < 0 || number < limit))
            limit = number;
    }
}

static int memory_total(const struct doctor *doctor, const char *name, long long *bytes_p)
{
    char text[64];

    if (!doctor_read_field(doctor, text, sizeof text, "/proc/meminfo", name) ||
        sscanf(text, "%15lld", bytes_p) != 1 || *bytes_p < 0)
        return 0;
    *bytes_p *= 1024;
    return 1;
}

void doctor_look_memory(struct doctor *doctor)
{
    char text[64];
    long long total, available, used = 0;

    if (!memory_total(doctor, "MemTotal", &total) ||
        !memory_total(doctor, "MemAvailable", &available)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "/proc/meminfo does not say it");
        return;
    }
    long long limit = group_limit(doctor, "memory", "memory.limit_in_bytes", "memory.max", total);
    if (limit == -2) {
        doctor_say(doctor, DOCTOR_UNKNOWN,
                   "the machine has %lld MiB free; the limit of the control group cannot be read",
                   available / mib);
        return;
    }
    if (limit >= 0 && doctor_read_cgroup(doctor, "memory", 0, "memory.usage_in_bytes",
                                         "memory.current", text, sizeof text) > 0)
        doctor_parse(text, &used);
    if (limit >= 0 && limit - used < available) {
        doctor_say(doctor, limit - used < 512 * mib ? DOCTOR_WARNED : DOCTOR_PASSED,
                   "a control group allows %lld MiB, of which %lld are in use", limit / mib,
                   used / mib);
        return;
    }
    doctor_say(doctor, available < 512 * mib ? DOCTOR_WARNED : DOCTOR_PASSED,
               "%lld MiB of %lld are free, and no visible control group allows less",
               available / mib, total / mib);
    if (available < 512 * mib)
        doctor_mend(doctor,
                    "ps -eo rss,pid,comm --sort=-rss | head   # and end what is not needed");
}

/* Get the word in brackets of "always [madvise] never". */
static int chosen_word(const char *text, char *word, size_t capacity)
{
    const char *begin = strchr(text, '[');
    const char *end = begin ? strchr(begin, ']') : NULL;

    if (!end || end - begin < 2)
        return 0;
    snprintf(word, capacity, "%.*s", (int)(end - begin - 1), begin + 1);
    return 1;
}

void doctor_look_hugepages(struct doctor *doctor)
{
    char text[128], word[32];

    if (doctor_read(doctor, text, sizeof text,
                    "/sys/kernel/mm/transparent_hugepage/shmem_enabled") <= 0 ||
        !chosen_word(text, word, sizeof word)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "shmem_enabled cannot be read");
        return;
    }
    int is_off = strcmp(word, "never") == 0 || strcmp(word, "deny") == 0;
    int is_on = strcmp(word, "advise") == 0 || strcmp(word, "always") == 0 ||
                strcmp(word, "within_size") == 0 || strcmp(word, "force") == 0;
    doctor_say(doctor,
               is_on    ? DOCTOR_PASSED
               : is_off ? DOCTOR_WARNED
                        : DOCTOR_UNKNOWN,
               "shared memory: %s%s", word, is_off ? ", so tensors are in small pages" : "");
}

/* Get the size of a tmpfs at /dev/shm: "size=64k" among its options, else half of the memory. */
static int shm_size(const struct doctor *doctor, char *table, size_t capacity, long long *bytes_p)
{
    const char *found = NULL;
    int n_mounts = 0;

    if (doctor_read(doctor, table, capacity, "/proc/self/mountinfo") <= 0)
        return -1;
    for (char *line, *rest = table; (line = strsep(&rest, "\n"));) {
        const char *tail = strstr(line, " - ");
        n_mounts += tail != NULL;
        if (tail && strstr(line, " /dev/shm ") && strstr(line, " /dev/shm ") < tail)
            found = strncmp(tail, " - tmpfs ", strlen(" - tmpfs ")) == 0 ? tail : NULL;
    }
    if (!found)
        return n_mounts ? 0 : -1;
    const char *size = strstr(found, "size=");
    if (!size)
        return memory_total(doctor, "MemTotal", bytes_p) ? (*bytes_p /= 2, 1) : -1;
    char unit = '\0';
    if (sscanf(size, "size=%15lld%c", bytes_p, &unit) < 1 || *bytes_p < 0)
        return -1;
    *bytes_p *= unit == 'k' ? 1024 : unit == 'm' ? mib : unit == 'g' ? 1024 * mib : 1;
    return 1;
}

void doctor_look_shm(struct doctor *doctor)
{
    static char table[64 * 1024];
    struct statvfs status;
    long long bytes;
    int has = shm_size(doctor, table, sizeof table, &bytes);

    if (has < 0) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "its size cannot be read");
        return;
    }
    if (!has) {
        doctor_say(doctor, DOCTOR_WARNED, "/dev/shm is no tmpfs here");
        doctor_mend(doctor, "mount -t tmpfs tmpfs /dev/shm");
        return;
    }
    long long left = bytes;
    if (!doctor_is_test(doctor)) {
        if (statvfs("/dev/shm", &status) != 0) {
            doctor_say(doctor, DOCTOR_UNKNOWN, "its free space cannot be read");
            return;
        }
        left = (long long)status.f_bavail * (long long)status.f_frsize;
    }
    if (bytes < 1024 * mib)
        doctor_say(doctor, DOCTOR_WARNED, "%lld MiB", bytes / mib);
    else if (left < 256 * mib)
        doctor_say(doctor, DOCTOR_WARNED, "%lld MiB of %lld are free", left / mib, bytes / mib);
    else
        doctor_say(doctor, DOCTOR_PASSED, "%lld MiB of %lld are free", left / mib, bytes / mib);
    if (bytes >= 1024 * mib && left < 256 * mib)
        doctor_mend(doctor, "ls -l /dev/shm   # and remove what ended jobs have left");
}

void doctor_look_balancing(struct doctor *doctor)
{
    struct doctor_names nodes;
    long long on = 0;
    size_t n = 0;

    if (!doctor_list(doctor, &nodes, "/sys/devices/system/node")) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "the NUMA nodes cannot be listed");
        return;
    }
    for (size_t i = 0; i < nodes.n; i++)
        n += strncmp(nodes.name[i], "node", 4) == 0;
    if (n <= 1)
        doctor_say(doctor, n ? DOCTOR_PASSED : DOCTOR_UNKNOWN, "%zu NUMA nodes", n);
    else if (!doctor_read_number(doctor, &on, "/proc/sys/kernel/numa_balancing"))
        doctor_say(doctor,
                   doctor_exists(doctor, "/proc/sys/kernel/osrelease") &&
                           !doctor_exists(doctor, "/proc/sys/kernel/numa_balancing")
                       ? DOCTOR_PASSED
                       : DOCTOR_UNKNOWN,
                   "%zu NUMA nodes, and the kernel has no numa_balancing to read", n);
    else
        doctor_say(doctor, on ? DOCTOR_WARNED : DOCTOR_PASSED, "%s, with %zu NUMA nodes",
                   on ? "on" : "off", n);
}

void doctor_look_pids(struct doctor *doctor)
{
    long long limit = group_limit(doctor, "pids", "pids.max", "pids.max", 1LL << 40);

    if (limit == -2)
        doctor_say(doctor, DOCTOR_UNKNOWN, "the limit of the control group cannot be read");
    else if (limit < 0)
        doctor_say(doctor, DOCTOR_PASSED, "no visible control group limits them");
    else
        doctor_say(doctor, limit < 256 ? DOCTOR_WARNED : DOCTOR_PASSED,
                   "a control group allows %lld", limit);
}

void doctor_look_files(struct doctor *doctor)
{
    long long soft, hard;

    if (!doctor_read_limit(doctor, "Max open files", &soft, &hard)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "/proc/self/limits does not say it");
        return;
    }
    if (soft < 0)
        doctor_say(doctor, DOCTOR_PASSED, "unlimited");
    else
        doctor_say(doctor,
                   soft < 256    ? DOCTOR_FAILED
                   : soft < 1024 ? DOCTOR_WARNED
                                 : DOCTOR_PASSED,
                   "%lld, which is enough for some %lld peers", soft,
                   soft < 60 ? 0 : soft / 10 - 6);
    if (soft >= 0 && soft < 1024 && hard > soft)
        doctor_mend(doctor, "ulimit -n %lld", hard);
}
