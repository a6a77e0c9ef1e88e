/* SPDX-License-Identifier: Apache-2.0 */
/* The PCI bus: GPUs, the path between GPUs and NICs, and obstacles on it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"

#define PCI "/sys/bus/pci/devices"

enum { PATHS = 16, CONFIG = 4096 };

/* Bits of a bridge's access control that redirect device-to-device traffic through the root. */
enum { ACS_EXTENDED_ID = 13, ACS_REQUEST = 1 << 2, ACS_COMPLETION = 1 << 3, ACS_UPSTREAM = 1 << 4 };

static long read_hex(const struct doctor *doctor, const char *device, const char *file)
{
    char text[32];
    char *end;

    if (doctor_read(doctor, text, sizeof text, PCI "/%s/%s", device, file) <= 0)
        return -1;
    long value = strtol(text, &end, 16);
    return end == text || *end || value < 0 ? -1 : value;
}

/* 3D controllers, accelerators, and NVIDIA's display controllers. */
static int is_gpu(const struct doctor *doctor, const char *device)
{
    long class = read_hex(doctor, device, "class");

    return class >> 8 == 0x0302 || class >> 8 == 0x1200 ||
           (class >> 16 == 3 && read_hex(doctor, device, "vendor") == 0x10de);
}

int doctor_gpus(const struct doctor *doctor, struct doctor_names *gpus_p)
{
    return doctor_list_if(doctor, is_gpu, gpus_p, PCI) ? (int)gpus_p->n : -1;
}

int doctor_nic_pci(const struct doctor *doctor, const char *device, char *address, size_t capacity)
{
    return doctor_read_link(doctor, address, capacity, "/sys/class/infiniband/%s/device", device) &&
           doctor_exists(doctor, PCI "/%s", address);
}

/* The bridges above a device: its path in /sys/devices, component by component from "pci0000:00"
 * on. */
struct path {
    int n;
    char text[PATH_MAX];
    const char *part[PATHS];
};

static int find_path(const struct doctor *doctor, const char *device, struct path *path)
{
    char link[PATH_MAX + DOCTOR_NAME + 32];
    char *begin;

    path->n = 0;
    snprintf(link, sizeof link, "%s" PCI "/%s", doctor->root, device);
    if (!realpath(link, path->text) || !(begin = strstr(path->text, "/devices/pci")))
        return 0;
    begin += strlen("/devices/");
    for (char *part; path->n < PATHS && (part = strsep(&begin, "/"));)
        path->part[path->n++] = part;
    return path->n > 1;
}

/* Return the distance: 0 behind one switch, 1 one root complex, 2 one NUMA node, 3 more, -1
 * unknown. */
static int distance(const struct doctor *doctor, const char *one, const char *other)
{
    struct path a, b;
    long long node_a, node_b;
    int common = 0;

    if (!find_path(doctor, one, &a) || !find_path(doctor, other, &b))
        return -1;
    while (common < a.n && common < b.n && strcmp(a.part[common], b.part[common]) == 0)
        common++;
    if (common > 1)
        return 0;
    if (common == 1)
        return 1;
    if (!doctor_read_number(doctor, &node_a, PCI "/%s/numa_node", one) ||
        !doctor_read_number(doctor, &node_b, PCI "/%s/numa_node", other) || node_a < 0 ||
        node_b < 0)
        return -1;
    return node_a == node_b ? 2 : 3;
}

static int is_card(const struct doctor *doctor, const char *name)
{
    char address[DOCTOR_NAME];

    return doctor_nic_pci(doctor, name, address, sizeof address);
}

/* List the GPUs, and the RDMA devices on the PCI bus: their PCI addresses with their names. */
static void list_devices(struct doctor *doctor, struct doctor_names *gpus,
                         struct doctor_names *names, struct doctor_names *addresses)
{
    doctor_gpus(doctor, gpus);
    doctor_list_if(doctor, is_card, names, "/sys/class/infiniband");
    addresses->n = addresses->n_cut = 0;
    for (size_t i = 0; i < names->n; i++)
        doctor_nic_pci(doctor, names->name[i], addresses->name[addresses->n++], DOCTOR_NAME);
    doctor_say_cut(doctor, gpus, "GPUs");
    doctor_say_cut(doctor, names, "RDMA devices");
}

void doctor_look_distance(struct doctor *doctor)
{
    static const char *const words[] = {"behind one bridge", "at one root complex",
                                        "on one NUMA node", "on another NUMA node"};
    struct doctor_names gpus, nics, addresses;

    list_devices(doctor, &gpus, &nics, &addresses);
    for (size_t i = 0; i < gpus.n && nics.n; i++) {
        int best = 4, unknown = 0;
        size_t nearest = 0;
        for (size_t k = 0; k < nics.n; k++) {
            int is = distance(doctor, gpus.name[i], addresses.name[k]);
            unknown += is < 0;
            if (is >= 0 && is < best) {
                best = is;
                nearest = k;
            }
        }
        if (best == 4 || (best > 1 && unknown))
            doctor_say(doctor, DOCTOR_UNKNOWN, "GPU %s: the distance of its NICs is not reported",
                       gpus.name[i]);
        else
            doctor_say(doctor, best > 1 ? DOCTOR_WARNED : DOCTOR_PASSED,
                       "GPU %s: the nearest NIC, %s, is %s", gpus.name[i], nics.name[nearest],
                       words[best]);
    }
}

/* Return Gbit/s of one lane, net of the coding, from the kernel's text "16.0 GT/s PCIe". 0:
 * unknown. */
static double lane_rate(const char *text)
{
    double rate;

    if (sscanf(text, "%8lf", &rate) != 1 || !(rate > 0 && rate < 1000))
        return 0;
    return rate < 6 ? rate * 0.8 : rate;
}

static void say_link(struct doctor *doctor, const char *what, const char *device)
{
    char speed[64], most_speed[64];
    long long width, most_width;

    if (doctor_read(doctor, speed, sizeof speed, PCI "/%s/current_link_speed", device) <= 0 ||
        doctor_read(doctor, most_speed, sizeof most_speed, PCI "/%s/max_link_speed", device) <= 0 ||
        !doctor_read_number(doctor, &width, PCI "/%s/current_link_width", device) ||
        !doctor_read_number(doctor, &most_width, PCI "/%s/max_link_width", device) ||
        lane_rate(speed) <= 0 || lane_rate(most_speed) <= 0 || width <= 0 || width > 64 ||
        most_width <= 0 || most_width > 64) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s (%s) does not report its link", what, device);
        return;
    }
    int is_narrow = width < most_width;
    int is_slow = lane_rate(speed) < lane_rate(most_speed);
    doctor_say(doctor, is_narrow || is_slow ? DOCTOR_WARNED : DOCTOR_PASSED,
               "%s (%s): %lld lanes of %.1f Gbit/s, of %lld of %.1f%s", what, device, width,
               lane_rate(speed), most_width, lane_rate(most_speed),
               is_slow && !is_narrow ? "; at rest some links go slower" : "");
    doctor_mend(
        doctor,
        is_narrow || is_slow ? "lspci -vv -s %s | grep LnkSta   # another slot, or reseat it" : "",
        device);
}

void doctor_look_pcie(struct doctor *doctor)
{
    struct doctor_names gpus, nics, addresses;

    list_devices(doctor, &gpus, &nics, &addresses);
    for (size_t i = 0; i < nics.n; i++)
        say_link(doctor, nics.name[i], addresses.name[i]);
    for (size_t i = 0; i < gpus.n; i++)
        say_link(doctor, "GPU", gpus.name[i]);
}

/* Report whether one of the process's cores is on the device's NUMA node. */
static void say_node(struct doctor *doctor, const struct stepaf_cpus *cpus, const char *what,
                     const char *device)
{
    struct stepaf_cpus near;
    char text[4096];
    int both = 0;

    if (doctor_read(doctor, text, sizeof text, PCI "/%s/local_cpulist", device) <= 0 ||
        !stepaf_cpus_parse(text, &near)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s (%s) does not report its cores", what, device);
        return;
    }
    for (int cpu = stepaf_cpus_next(cpus, 0); cpu >= 0; cpu = stepaf_cpus_next(cpus, cpu + 1))
        both += stepaf_cpus_next(&near, cpu) == cpu;
    doctor_say(doctor, both ? DOCTOR_PASSED : DOCTOR_WARNED,
               "%s (%s): %d of this process's cores are on its NUMA node", what, device, both);
    if (!both)
        doctor_mend(doctor, "taskset -c %.200s COMMAND", text);
}

void doctor_look_numa(struct doctor *doctor)
{
    struct doctor_names gpus, nics, addresses;
    struct stepaf_cpus cpus;
    int known = doctor_cpus(doctor, &cpus);

    list_devices(doctor, &gpus, &nics, &addresses);
    if (!known && gpus.n + nics.n) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "this process's cores are not known");
        return;
    }
    for (size_t i = 0; i < nics.n; i++)
        say_node(doctor, &cpus, nics.name[i], addresses.name[i]);
    for (size_t i = 0; i < gpus.n; i++)
        say_node(doctor, &cpus, "GPU", gpus.name[i]);
}

static void say_iommu(struct doctor *doctor, const char *what, const char *device, int has_groups)
{
    char type[DOCTOR_NAME];

    if (!has_groups)
        doctor_say(doctor, DOCTOR_PASSED, "%s (%s): no IOMMU is on", what, device);
    else if (doctor_read(doctor, type, sizeof type, PCI "/%s/iommu_group/type", device) <= 0)
        doctor_say(doctor, DOCTOR_UNKNOWN, "%s (%s): the mode of its IOMMU cannot be read", what,
                   device);
    else if (strcmp(type, "identity") == 0)
        doctor_say(doctor, DOCTOR_PASSED, "%s (%s): passed through", what, device);
    else
        doctor_say(doctor, strncmp(type, "DMA", 3) == 0 ? DOCTOR_WARNED : DOCTOR_UNKNOWN,
                   "%s (%s): its addresses are translated (%s)", what, device, type);
}

void doctor_look_iommu(struct doctor *doctor)
{
    struct doctor_names gpus, nics, addresses, groups;

    list_devices(doctor, &gpus, &nics, &addresses);
    if (gpus.n + nics.n == 0)
        return;
    if (!doctor_list(doctor, &groups, "/sys/kernel/iommu_groups")) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "/sys/kernel/iommu_groups cannot be listed");
        return;
    }
    for (size_t i = 0; i < nics.n; i++)
        say_iommu(doctor, nics.name[i], addresses.name[i], groups.n > 0);
    for (size_t i = 0; i < gpus.n; i++)
        say_iommu(doctor, "GPU", gpus.name[i], groups.n > 0);
}

static unsigned word_at(const unsigned char *config, unsigned at)
{
    return config[at] | (unsigned)config[at + 1] << 8;
}

/* Return a bridge's access control setting; 0 if it has none, -1 if it cannot be read. */
static int access_control(const struct doctor *doctor, const char *bridge)
{
    char path[PATH_MAX + DOCTOR_NAME + 32];
    unsigned char config[CONFIG];

    snprintf(path, sizeof path, "%s" PCI "/%s/config", doctor->root, bridge);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(config, 1, sizeof config, file) : 0;
    if (file)
        fclose(file);
    /* Users other than root get 64 bytes; 256 where the extended part cannot be reached. */
    if (n < CONFIG)
        return -1;
    for (unsigned at = 0x100, steps = 0; at >= 0x100 && at + 8 <= CONFIG && steps < 256; steps++) {
        if (word_at(config, at) == ACS_EXTENDED_ID)
            return (int)word_at(config, at + 6);
        at = word_at(config, at + 2) >> 4;
    }
    return 0;
}

/* Report each bridge above a device, unless it was reported for another device. */
static void say_bridges(struct doctor *doctor, const char *device, struct doctor_names *seen,
                        int *n_unknown_p)
{
    struct path path;

    if (!find_path(doctor, device, &path)) {
        ++*n_unknown_p;
        return;
    }
    for (int i = 1; i < path.n - 1; i++) {
        size_t k = 0;
        while (k < seen->n && strcmp(seen->name[k], path.part[i]) != 0)
            k++;
        if (k < seen->n)
            continue;
        if (seen->n == DOCTOR_NAMES) {
            seen->n_cut = 1;
            continue;
        }
        snprintf(seen->name[seen->n++], DOCTOR_NAME, "%s", path.part[i]);
        int control = access_control(doctor, path.part[i]);
        if (control < 0)
            ++*n_unknown_p;
        else if (control & (ACS_REQUEST | ACS_COMPLETION | ACS_UPSTREAM)) {
            doctor_say(doctor, DOCTOR_WARNED,
                       "bridge %s above %s sends traffic between cards through the root (ACS %#x)",
                       path.part[i], device, (unsigned)control);
            doctor_mend(doctor, "setpci -s %s ECAP_ACS+0x6.w=0000", path.part[i]);
        }
    }
}

void doctor_look_acs(struct doctor *doctor)
{
    struct doctor_names gpus, nics, addresses;
    struct doctor_names seen = {.n = 0};
    size_t before = doctor->n;
    int n_unknown = 0;

    list_devices(doctor, &gpus, &nics, &addresses);
    if (gpus.n == 0 || gpus.n + nics.n < 2)
        return;
    for (size_t i = 0; i < gpus.n; i++)
        say_bridges(doctor, gpus.name[i], &seen, &n_unknown);
    for (size_t i = 0; i < nics.n; i++)
        say_bridges(doctor, addresses.name[i], &seen, &n_unknown);
    if (seen.n_cut)
        doctor_say(doctor, DOCTOR_UNKNOWN,
                   "more than %d bridges, of which the others were not checked", DOCTOR_NAMES);
    if (n_unknown) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "%d bridges cannot be read, which requires root",
                   n_unknown);
        doctor_mend(doctor, "sudo stepaf_doctor acs");
    } else if (doctor->n == before) {
        doctor_say(doctor, DOCTOR_PASSED, "%zu bridges, and none sends through the root", seen.n);
    }
}
