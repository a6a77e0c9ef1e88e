/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/sys.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "topo/load.h"

/* Highest index of /sys/.../cpuN/cache/indexI that is read; there are 4 or 5. */
enum { CACHE_INDEX_MAX = 8 };

/* Two processes that read the same boot id run under the same kernel. If they are in the same PID
 * namespace too, they can reach each other's file descriptors and memory by process id. The host
 * name counts as well: launchers tell nodes by it, and one kernel may serve several. */
static uint64_t probe_node_id(const char *root, const char *host)
{
    char text[PATH_MAX];
    uint64_t hash = stepaf_hash(STEPAF_HASH_START, host, strlen(host));

    int bytes = stepaf_sys_read(text, sizeof text, root, "/proc/sys/kernel/random/boot_id");
    if (bytes > 0)
        hash = stepaf_hash(hash, text, (size_t)bytes);

    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/ns/pid", root);
    ssize_t linked = readlink(path, text, sizeof text);
    if (linked > 0)
        hash = stepaf_hash(hash, text, (size_t)linked);
    return hash ? hash : 1;
}

static int count_list(const char *root, const char *path)
{
    char text[1024];
    struct stepaf_cpus list;
    if (stepaf_sys_read(text, sizeof text, root, "%s", path) <= 0 ||
        !stepaf_cpus_parse(text, &list))
        return 0;
    return stepaf_cpus_count(&list);
}

/* Return "2048K" or "32M" in bytes; 0 if it is no size. */
static size_t parse_size(const char *text)
{
    char *end;
    errno = 0;
    unsigned long size = strtoul(text, &end, 10);
    if (end == text || errno || size > (SIZE_MAX >> 21))
        return 0;
    return *end == 'M' ? size << 20 : *end == 'K' ? size << 10 : size;
}

static void probe_caches(const char *root, int cpu, struct stepaf_topo *topo_p)
{
    static const char format[] = "/sys/devices/system/cpu/cpu%d/cache/index%d/%s";
    for (int i = 0; i < CACHE_INDEX_MAX; i++) {
        char level[8];
        char type[16];
        char size[32];
        if (stepaf_sys_read(level, sizeof level, root, format, cpu, i, "level") <= 0)
            return;
        if ((level[0] != '2' && level[0] != '3') ||
            stepaf_sys_read(type, sizeof type, root, format, cpu, i, "type") <= 0 ||
            stepaf_sys_read(size, sizeof size, root, format, cpu, i, "size") <= 0)
            continue;
        if (strncmp(type, "Instruction", strlen("Instruction")) == 0)
            continue;
        *(level[0] == '2' ? &topo_p->l2_bytes : &topo_p->l3_bytes) = parse_size(size);
    }
}

/* Read the units that share the largest data cache of @a cpu. Returns 0 if the kernel tells of
 * none. Indices ascend with levels. */
static int read_sharers(const char *root, int cpu, struct stepaf_cpus *sharers_p)
{
    static const char format[] = "/sys/devices/system/cpu/cpu%d/cache/index%d/%s";
    char text[1024], type[16];
    int is_there = 0;

    for (int i = 0; i < CACHE_INDEX_MAX; i++) {
        struct stepaf_cpus sharers;
        if (stepaf_sys_read(type, sizeof type, root, format, cpu, i, "type") <= 0)
            break;
        if (strncmp(type, "Instruction", strlen("Instruction")) == 0 ||
            stepaf_sys_read(text, sizeof text, root, format, cpu, i, "shared_cpu_list") <= 0 ||
            !stepaf_cpus_parse(text, &sharers))
            continue;
        *sharers_p = sharers;
        is_there = 1;
    }
    return is_there;
}

void stepaf_sys_near(const char *root, const struct stepaf_cpus *own, struct stepaf_cpus *near_p)
{
    struct stepaf_cpus shared = {{0}}, sharers;

    for (int cpu = -1; (cpu = stepaf_cpus_next(own, cpu + 1)) >= 0;)
        if (stepaf_cpus_next(&shared, cpu) != cpu && read_sharers(root, cpu, &sharers))
            stepaf_cpus_add(&shared, &sharers);
    stepaf_cpus_add(&shared, own);
    *near_p = shared;
}

static bool is_any(const char *root, const char *name)
{
    (void)root;
    (void)name;
    return true;
}

static bool may_be_gpu(const char *root, const char *name)
{
    static const char format[] = "/sys/bus/pci/devices/%s/%s";
    enum { INTERFACE_BITS = 8 }; /* of a class */
    char class[16], vendor[16];

    if (stepaf_sys_read(class, sizeof class, root, format, name, "class") <= 0 ||
        stepaf_sys_read(vendor, sizeof vendor, root, format, name, "vendor") <= 0)
        return true;
    return stepaf_topo_is_gpu_class((unsigned)strtoul(class, NULL, 16) >> INTERFACE_BITS,
                                    (unsigned)strtoul(vendor, NULL, 16));
}

/* Return whether the directory has an entry for which @a is_one is true. */
static bool has_entry(const char *root, const char *path,
                      bool (*is_one)(const char *root, const char *name))
{
    char name[PATH_MAX];
    const struct dirent *entry;
    bool has = false;

    snprintf(name, sizeof name, "%s%s", root, path);
    DIR *directory = opendir(name);
    if (!directory)
        return false;
    while (!has && (entry = readdir(directory)))
        has = entry->d_name[0] != '.' && is_one(root, entry->d_name);
    closedir(directory);
    return has;
}

bool stepaf_sys_may_have_devices(const char *root)
{
    return has_entry(root, "/sys/class/infiniband", is_any) ||
           has_entry(root, "/sys/class/bxi", is_any) ||
           has_entry(root, "/sys/bus/pci/devices", may_be_gpu);
}

static int at_least_1(int count)
{
    return count < 1 ? 1 : count;
}

void stepaf_sys_probe(const char *root, const struct stepaf_cpus *usable,
                      struct stepaf_topo *topo_p)
{
    memset(topo_p, 0, sizeof *topo_p);
    if (gethostname(topo_p->host, sizeof topo_p->host) != 0)
        snprintf(topo_p->host, sizeof topo_p->host, "?");
    topo_p->host[sizeof topo_p->host - 1] = '\0';
    topo_p->node_id = probe_node_id(root, topo_p->host);

    topo_p->cores_machine = count_list(root, "/sys/devices/system/cpu/online");
    if (topo_p->cores_machine == 0)
        topo_p->cores_machine = at_least_1((int)sysconf(_SC_NPROCESSORS_ONLN));
    topo_p->numa_nodes = at_least_1(count_list(root, "/sys/devices/system/node/online"));

    topo_p->cores_usable = stepaf_cpus_count(usable);
    if (topo_p->cores_usable == 0)
        topo_p->cores_usable = topo_p->cores_machine;
    int quota = stepaf_sys_cpu_quota(root);
    if (quota > 0 && quota < topo_p->cores_usable)
        topo_p->cores_usable = quota;

    int cpu = stepaf_cpus_next(usable, 0);
    probe_caches(root, cpu < 0 ? 0 : cpu, topo_p);
    stepaf_cpus_format(usable, topo_p->binding, sizeof topo_p->binding);
}
