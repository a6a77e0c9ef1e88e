/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/nics.h"

#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "topo/cpus.h"
#include "topo/load.h"

enum { DEVICES_MAX = 64, PCI_AMAZON = 0x1d0f, PCI_ETHERNET = 0x0200 };

/* Distance of a device. Behind a switch, the deeper the common bridge, the nearer. */
enum far {
    FAR_SWITCH = 0, /* up to here, less the bridge's depth */
    FAR_SWITCHES = 99,
    FAR_ROOT = 100,
    FAR_NODE,
    FAR_PACKAGE,
    FAR_MACHINE
};

struct machine {
    hwloc_topology_t topology;
    hwloc_obj_t nic[DEVICES_MAX];
    unsigned n_nics;
};

/* The devices at the minimum distance, one bit each. */
struct nearest {
    uint64_t set;
    int distance;
};

static hwloc_obj_t common_ancestor(hwloc_obj_t one, hwloc_obj_t other)
{
    for (; one; one = one->parent)
        for (hwloc_obj_t above = other; above; above = above->parent)
            if (above == one)
                return one;
    return NULL;
}

/* Return whether one NUMA node has all of an object's cores. Other nodes may have the same cores,
 * such as those of GPU memory on Grace. */
static bool is_in_one_node(hwloc_topology_t topology, hwloc_obj_t object)
{
    hwloc_obj_t node = NULL;

    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)))
        if (hwloc_bitmap_isincluded(object->cpuset, node->cpuset))
            return true;
    return false;
}

/* Return the distance between a device and a GPU, or a processing unit. */
static int distance(hwloc_topology_t topology, hwloc_obj_t from, hwloc_obj_t to)
{
    hwloc_obj_t common = common_ancestor(from, to);

    if (!common)
        return FAR_MACHINE;
    if (common->type == HWLOC_OBJ_PCI_DEVICE) /* one card that is both */
        return FAR_SWITCH;
    if (common->type == HWLOC_OBJ_BRIDGE) {
        unsigned depth = common->attr->bridge.depth;
        return common->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST ? FAR_ROOT
               : depth < FAR_SWITCHES ? (int)(FAR_SWITCHES - depth)
                                      : FAR_SWITCH;
    }
    if (is_in_one_node(topology, common))
        return FAR_NODE;
    return common->type == HWLOC_OBJ_PACKAGE ||
                   hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, common)
               ? FAR_PACKAGE
               : FAR_MACHINE;
}

static struct nearest find_nearest(const struct machine *machine, hwloc_obj_t from)
{
    struct nearest nearest = {.distance = FAR_MACHINE};

    for (unsigned i = 0; i < machine->n_nics; i++) {
        int its = from ? distance(machine->topology, from, machine->nic[i]) : FAR_MACHINE;
        if (its < nearest.distance)
            nearest = (struct nearest){.distance = its};
        if (its == nearest.distance)
            nearest.set |= 1ull << i;
    }
    return nearest;
}

/* Return whether some port of the device is up: the kernel gives its state as a number, 4. Amazon's
 * devices have no connections, so no rank may be told to use them. */
static bool is_up(hwloc_obj_t device)
{
    char name[24];

    if (device->parent->type == HWLOC_OBJ_PCI_DEVICE &&
        device->parent->attr->pcidev.vendor_id == PCI_AMAZON)
        return false;
    for (int port = 1; port < UINT8_MAX; port++) {
        snprintf(name, sizeof(name), "Port%dState", port);
        const char *state = hwloc_obj_get_info_by_name(device, name);
        if (!state)
            return port == 1; /* hwloc does not know any port */
        if (atoi(state) == 4)
            return true;
    }
    return false;
}

/* Return whether this process, perhaps in a container, may open the device's file. */
static bool can_be_opened(const char *name)
{
    char path[2 * NAME_MAX];
    const struct dirent *entry;
    bool can = false;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/infiniband_verbs", name);
    DIR *directory = opendir(path);
    if (!directory)
        return false;
    while (!can && (entry = readdir(directory))) {
        snprintf(path, sizeof(path), "/dev/infiniband/%s", entry->d_name);
        can = entry->d_name[0] != '.' && access(path, R_OK | W_OK) == 0;
    }
    closedir(directory);
    return can;
}

static bool is_candidate(const struct stepaf_topo_nics_query *query, hwloc_obj_t device)
{
    if (!query->names)
        return is_up(device) && (query->xml || can_be_opened(device->name));
    for (size_t i = 0; i < query->n_names; i++)
        if (strcmp(query->names[i], device->name) == 0)
            return true;
    return false;
}

static void find_nics(const struct stepaf_topo_nics_query *query, struct machine *machine)
{
    hwloc_obj_t device = NULL;

    while ((device = hwloc_get_next_osdev(machine->topology, device)))
        if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS && device->name &&
            strlen(device->name) < STEPAF_TOPO_NIC_NAME && machine->n_nics < DEVICES_MAX &&
            is_candidate(query, device))
            machine->nic[machine->n_nics++] = device;
}

/* Return whether it is an Ethernet controller, rather than one of InfiniBand. */
static bool is_ethernet(hwloc_obj_t device)
{
    return device->parent->type == HWLOC_OBJ_PCI_DEVICE &&
           device->parent->attr->pcidev.class_id == PCI_ETHERNET;
}

/* Keep the network that the machine has more devices of. Ports of InfiniBand and of Ethernet do not
 * reach each other, so all ranks must use the same. */
static void keep_one_network(struct machine *machine)
{
    unsigned n_ethernet = 0, n = 0;

    for (unsigned i = 0; i < machine->n_nics; i++)
        n_ethernet += is_ethernet(machine->nic[i]);
    for (unsigned i = 0; i < machine->n_nics; i++)
        if (is_ethernet(machine->nic[i]) == (2 * n_ethernet > machine->n_nics))
            machine->nic[n++] = machine->nic[i];
    machine->n_nics = n;
}

/* One of n that share the same devices. */
struct turn {
    unsigned index;
    unsigned n;
};

/* Return the GPU's turn among the GPUs to which these devices are the nearest. */
static struct turn turn_of_gpu(const struct machine *machine, hwloc_obj_t gpu, uint64_t set)
{
    struct turn turn = {0};
    hwloc_obj_t device = NULL;

    while ((device = hwloc_get_next_pcidev(machine->topology, device))) {
        if (device == gpu)
            turn.index = turn.n;
        turn.n += device == gpu ||
                  (stepaf_topo_is_gpu(device) && find_nearest(machine, device).set == set);
    }
    return turn;
}

/* Return the unit's turn among the processing units to which these devices are the nearest. */
static struct turn turn_of_unit(const struct machine *machine, hwloc_obj_t unit, uint64_t set)
{
    struct turn turn = {0};
    hwloc_obj_t other = NULL;

    while ((other = hwloc_get_next_obj_by_type(machine->topology, HWLOC_OBJ_PU, other))) {
        if (other == unit)
            turn.index = turn.n;
        turn.n += find_nearest(machine, other).set == set;
    }
    return turn;
}

static void say_why(const struct nearest *nearest, const char *place, struct stepaf_topo_nics *nics)
{
    static const char *const words[] = {"at the PCIe root of", "on the NUMA node of",
                                        "in the package of", "on another NUMA node than"};
    static const char *const short_words[] = {"PCIe root", "NUMA node", "package", "other node"};
    unsigned n = (unsigned)__builtin_popcountll(nearest->set);
    bool is_switch = nearest->distance < FAR_ROOT;
    int used = snprintf(
        nics->why, STEPAF_TOPO_WHY, "%s %.40s",
        is_switch ? "behind the PCIe switch of" : words[nearest->distance - FAR_ROOT], place);

    nics->how = is_switch ? "PCIe switch" : short_words[nearest->distance - FAR_ROOT];
    if (n > 1)
        snprintf(nics->why + used, STEPAF_TOPO_WHY - (size_t)used, ", %u of %u as near", nics->n,
                 n);
}

/* Take one sharer's part of the nearest devices. */
static void take_share(const struct machine *machine, const struct nearest *nearest,
                       const struct turn *turn, bool several, struct stepaf_topo_nics *nics_p)
{
    unsigned n = (unsigned)__builtin_popcountll(nearest->set), at = 0;
    unsigned sharers = turn->n ? turn->n : 1;
    unsigned first = (unsigned)((uint64_t)turn->index * n / sharers);
    unsigned end = (unsigned)((uint64_t)(turn->index + 1) * n / sharers);

    if (end <= first || !several)
        end = first + 1;
    for (unsigned i = 0; i < machine->n_nics && nics_p->n < STEPAF_TOPO_NICS_MAX; i++) {
        if (!(nearest->set >> i & 1))
            continue;
        if (at >= first && at < end)
            snprintf(nics_p->name[nics_p->n++], STEPAF_TOPO_NIC_NAME, "%s", machine->nic[i]->name);
        at++;
    }
}

static void choose_on(const struct machine *machine, const struct stepaf_topo_nics_query *query,
                      struct stepaf_topo_nics *nics_p)
{
    hwloc_obj_t gpu =
        query->gpu ? hwloc_get_pcidev_by_busidstring(machine->topology, query->gpu) : NULL;
    hwloc_obj_t unit = query->core < 0
                           ? NULL
                           : hwloc_get_pu_obj_by_os_index(machine->topology, (unsigned)query->core);
    struct nearest nearest = find_nearest(machine, gpu ? gpu : unit);
    struct turn turn = {0};
    char place[48];

    if (gpu) {
        turn = turn_of_gpu(machine, gpu, nearest.set);
        snprintf(place, sizeof(place), "GPU %s", query->gpu);
    } else if (unit) {
        turn = turn_of_unit(machine, unit, nearest.set);
        snprintf(place, sizeof(place), "core %d", query->core);
    }
    take_share(machine, &nearest, &turn, gpu && nearest.distance <= FAR_NODE, nics_p);
    if (gpu || unit)
        say_why(&nearest, place, nics_p);
}

void stepaf_topo_nics_choose(const struct stepaf_topo_nics_query *query,
                             struct stepaf_topo_nics *nics_p)
{
    struct machine machine = {.topology = stepaf_topo_load(query->xml, 0, true)};

    *nics_p = (struct stepaf_topo_nics){.how = ""};
    if (machine.topology) {
        find_nics(query, &machine);
        keep_one_network(&machine);
        if (machine.n_nics)
            choose_on(&machine, query, nics_p);
        hwloc_topology_destroy(machine.topology);
    }
    if (!nics_p->n && query->names && query->n_names) { /* software devices, or hwloc sees none */
        snprintf(nics_p->name[0], STEPAF_TOPO_NIC_NAME, "%.63s", query->names[0]);
        nics_p->n = 1;
    }
}

int stepaf_topo_nics_core(void)
{
    struct stepaf_cpus usable;
    unsigned cpu, node;

    if (stepaf_cpus_usable(&usable) &&
        stepaf_cpus_count(&usable) * 4L <= sysconf(_SC_NPROCESSORS_ONLN))
        return stepaf_cpus_next(&usable, 0);
    return syscall(SYS_getcpu, &cpu, &node, NULL) ? -1 : (int)cpu; /* glibc has it since 2.29 */
}
