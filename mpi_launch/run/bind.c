/* SPDX-License-Identifier: Apache-2.0 */
/* Places found with hwloc, which only this file of stepaf-run includes. */
#include <errno.h>
#include <hwloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "place.h"
#include "topo/nics.h"

enum { GPUS_MAX = 64, PCI_NVIDIA = 0x10de, PCI_CLASS_DISPLAY = 0x03 };

/* A topology, and the part of it that this process may use. */
struct machine {
    hwloc_topology_t topology;
    hwloc_bitmap_t usable;
    hwloc_obj_t gpus[GPUS_MAX]; /* in bus order, as CUDA can number them */
    int n_gpus;
};

/* Components that would load vendor libraries, or leak, are excluded: the PCI bus is known from
 * sysfs. */
static const char *const left_out[] = {"pci", "cuda", "nvml", "opencl", "gl", "rsmi", "levelzero"};

__attribute__((format(printf, 2, 3))) static void warn(struct run_place *place, const char *format,
                                                       ...)
{
    va_list args;

    if (place->n_warnings == RUN_WARNINGS_MAX)
        return;
    va_start(args, format);
    vsnprintf(place->warning[place->n_warnings++], sizeof(place->warning[0]), format, args);
    va_end(args);
}

static void machine_close(struct machine *machine)
{
    hwloc_bitmap_free(machine->usable);
    if (machine->topology)
        hwloc_topology_destroy(machine->topology);
}

static int load(hwloc_topology_t topology, const char *xml, int with_io)
{
    if (xml && hwloc_topology_set_xml(topology, xml) != 0)
        return -1;
    if (with_io)
        hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    for (size_t i = 0; i < sizeof(left_out) / sizeof(*left_out); i++)
        hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      left_out[i]);
    return hwloc_topology_load(topology);
}

/* The driver lists the GPUs that a container has been given; the bus shows all of the machine's. */
static int is_given(hwloc_obj_t gpu)
{
    static const char drivers[] = "/proc/driver/nvidia/gpus";
    const struct hwloc_pcidev_attr_s *pci = &gpu->attr->pcidev;
    char path[96];

    if (access(drivers, F_OK) != 0)
        return 1;
    snprintf(path, sizeof(path), "%s/%04x:%02x:%02x.%x", drivers, pci->domain, pci->bus, pci->dev,
             pci->func);
    return access(path, F_OK) == 0;
}

static int compare_buses(const void *first, const void *second)
{
    const struct hwloc_pcidev_attr_s *a = &(*(hwloc_obj_t const *)first)->attr->pcidev;
    const struct hwloc_pcidev_attr_s *b = &(*(hwloc_obj_t const *)second)->attr->pcidev;
    unsigned long x =
        (unsigned long)a->domain << 16 | (unsigned)a->bus << 8 | a->dev << 3 | a->func;
    unsigned long y =
        (unsigned long)b->domain << 16 | (unsigned)b->bus << 8 | b->dev << 3 | b->func;

    return x < y ? -1 : x > y;
}

static void find_gpus(struct machine *machine, int is_here)
{
    hwloc_obj_t device = NULL;

    while ((device = hwloc_get_next_pcidev(machine->topology, device))) {
        if (device->attr->pcidev.vendor_id == PCI_NVIDIA &&
            device->attr->pcidev.class_id >> 8 == PCI_CLASS_DISPLAY && machine->n_gpus < GPUS_MAX &&
            (!is_here || is_given(device)))
            machine->gpus[machine->n_gpus++] = device;
    }
    qsort(machine->gpus, (size_t)machine->n_gpus, sizeof(*machine->gpus), compare_buses);
}

/* The topology has what the control group allows; the affinity mask belongs to this process. */
static int machine_open(const char *xml, int with_io, struct machine *machine_p)
{
    *machine_p = (struct machine){.usable = hwloc_bitmap_alloc()};
    if (!machine_p->usable || hwloc_topology_init(&machine_p->topology) != 0 ||
        load(machine_p->topology, xml, with_io) != 0) {
        int error = errno;
        machine_close(machine_p);
        return run_fail("cannot load %s topology: %s", xml ? xml : "this machine's",
                        strerror(error));
    }
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(machine_p->topology);
    if (xml ||
        hwloc_get_cpubind(machine_p->topology, machine_p->usable, HWLOC_CPUBIND_PROCESS) != 0)
        hwloc_bitmap_copy(machine_p->usable, allowed);
    hwloc_bitmap_and(machine_p->usable, machine_p->usable, allowed);
    if (with_io)
        find_gpus(machine_p, !xml);
    return 0;
}

/* Return the units near a device; NULL where the machine does not tell, or all are equally near. */
static hwloc_const_bitmap_t near(const struct machine *machine, hwloc_obj_t device)
{
    hwloc_obj_t above = hwloc_get_non_io_ancestor_obj(machine->topology, device);

    return above && above->cpuset && hwloc_bitmap_intersects(above->cpuset, machine->usable)
               ? above->cpuset
               : NULL;
}

/* Count the objects of a type that have usable units. */
static int count(const struct machine *machine, hwloc_obj_type_t type)
{
    hwloc_obj_t object = NULL;
    int n = 0;

    while ((object = hwloc_get_next_obj_by_type(machine->topology, type, object)))
        n += hwloc_bitmap_intersects(object->cpuset, machine->usable);
    return n;
}

/* Get the usable units of those objects from number @a first up to @a end. */
static void gather(const struct machine *machine, hwloc_obj_type_t type, int first, int end,
                   hwloc_bitmap_t cores)
{
    hwloc_obj_t object = NULL;
    int i = 0;

    while ((object = hwloc_get_next_obj_by_type(machine->topology, type, object))) {
        if (!hwloc_bitmap_intersects(object->cpuset, machine->usable))
            continue;
        if (i >= first && i < end)
            hwloc_bitmap_or(cores, cores, object->cpuset);
        i++;
    }
    hwloc_bitmap_and(cores, cores, machine->usable);
}

/* Get an equal share of the cores or, where they are too few, of their hardware threads. */
static void bind_core(const struct machine *machine, const struct run_place_query *query,
                      hwloc_bitmap_t cores, struct run_place *place)
{
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    int n = count(machine, type);
    int ranks = query->local_ranks;

    if (n < ranks)
        n = count(machine, type = HWLOC_OBJ_PU);
    if (query->quota && query->quota < ranks && query->quota < n)
        n = query->quota;
    if (n >= ranks) {
        gather(machine, type, (int)((long long)n * query->local / ranks),
               (int)((long long)n * (query->local + 1) / ranks), cores);
    } else if (query->bind == RUN_BIND_CORE) {
        warn(place, "%d ranks share %d processors here: they are not bound", ranks, n);
    }
}

static void bind_numa(const struct machine *machine, const struct run_place_query *query,
                      hwloc_bitmap_t cores)
{
    int n = count(machine, HWLOC_OBJ_NUMANODE);

    if (n > 0)
        gather(machine, HWLOC_OBJ_NUMANODE, query->local % n, query->local % n + 1, cores);
}

/* Return the number of entries of CUDA_VISIBLE_DEVICES. CUDA ignores entries after a bad one;
 * that is not checked here. */
static int count_entries(const char *visible)
{
    int n = *visible != '\0';

    for (; *visible; visible++)
        n += *visible == ',';
    return n;
}

/* Choose the rank's GPU among those that it may see, and write CUDA's name for it. Return the
 * GPU if its place is known, else NULL. */
static hwloc_obj_t pick_gpu(const struct machine *machine, const struct run_place_query *query,
                            struct run_place *place)
{
    int n = query->visible ? count_entries(query->visible) : machine->n_gpus;
    const char *entry = query->visible;
    char *end;

    if (n == 0) {
        warn(place, "there is no NVIDIA GPU here");
        return NULL;
    }
    if (query->devices && query->local_ranks > n)
        warn(place, "%d ranks share %d GPU%s here", query->local_ranks, n, n > 1 ? "s" : "");
    if (!entry) {
        if (query->devices)
            snprintf(place->device, sizeof(place->device), "%d", query->local % n);
        return machine->gpus[query->local % n];
    }
    for (int skip = query->local % n; skip > 0; skip--)
        entry = strchr(entry, ',') + 1;
    int bytes = (int)strcspn(entry, ",");
    if (query->devices && (size_t)bytes < sizeof(place->device))
        snprintf(place->device, sizeof(place->device), "%.*s", bytes, entry);
    long index = strtol(entry, &end, 10);
    int is_number = bytes > 0 && end == entry + bytes && index >= 0;
    return is_number && index < machine->n_gpus ? machine->gpus[index] : NULL;
}

static void bind_gpu(const struct machine *machine, hwloc_obj_t gpu, hwloc_bitmap_t cores,
                     struct run_place *place)
{
    hwloc_const_bitmap_t set = gpu ? near(machine, gpu) : NULL;

    if (set)
        hwloc_bitmap_and(cores, set, machine->usable);
    else if (gpu)
        warn(place, "this machine does not report which cores are near a GPU: ranks are not bound");
    else
        warn(place, "the place of a rank's GPU is not known: the rank is not bound");
}

/* Find the NIC nearest to @a cores, one with RDMA rather than one without. */
static hwloc_obj_t find_nic(const struct machine *machine, hwloc_const_bitmap_t cores)
{
    hwloc_obj_t best = NULL;
    hwloc_obj_t device = NULL;
    int best_points = -1;

    while ((device = hwloc_get_next_osdev(machine->topology, device))) {
        hwloc_obj_osdev_type_t type = device->attr->osdev.type;
        if ((type != HWLOC_OBJ_OSDEV_OPENFABRICS && type != HWLOC_OBJ_OSDEV_NETWORK) ||
            !near(machine, device) || device->parent->type != HWLOC_OBJ_PCI_DEVICE)
            continue;
        int points = 2 * (type == HWLOC_OBJ_OSDEV_OPENFABRICS) +
                     hwloc_bitmap_intersects(near(machine, device), cores);
        if (points > best_points) {
            best_points = points;
            best = device;
        }
    }
    return best;
}

/* Choose cores for a progress thread. It polls, so it should not share the rank's only core: it
 * gets the rank's own cores near the device if they are two or more, else all cores near the
 * device. */
static void place_progress(const struct machine *machine, hwloc_obj_t gpu, hwloc_bitmap_t cores,
                           struct run_place *place)
{
    hwloc_const_bitmap_t around = hwloc_bitmap_iszero(cores) ? machine->usable : cores;
    hwloc_obj_t device = gpu ? gpu : find_nic(machine, around);
    hwloc_const_bitmap_t set = device ? near(machine, device) : NULL;
    hwloc_bitmap_t progress = set ? hwloc_bitmap_alloc() : NULL;

    if (!progress)
        return;
    hwloc_bitmap_and(progress, set, around);
    if (hwloc_bitmap_weight(progress) < 2)
        hwloc_bitmap_and(progress, set, machine->usable);
    hwloc_bitmap_list_snprintf(place->progress, sizeof(place->progress), progress);
    hwloc_bitmap_free(progress);
}

static int has_rdma(const struct machine *machine)
{
    hwloc_obj_t device = NULL;

    while ((device = hwloc_get_next_osdev(machine->topology, device)))
        if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
            return 1;
    return 0;
}

/* Return the core that represents the rank's place; ranks that share their cores are spread over
 * them. -1: the rank is not bound. */
static int place_core(const struct machine *machine, const struct run_place_query *query,
                      hwloc_const_bitmap_t cores)
{
    int sharers = 1, nodes = count(machine, HWLOC_OBJ_NUMANODE);
    int n = hwloc_bitmap_weight(cores), core = hwloc_bitmap_first(cores);

    if (query->bind == RUN_BIND_NUMA && nodes > 0)
        sharers = (query->local_ranks + nodes - 1) / nodes;
    for (int skip = sharers > 1 ? query->local / nodes * n / sharers : 0; skip > 0; skip--)
        core = hwloc_bitmap_next(cores, core);
    return core;
}

/* Find the RDMA devices nearest to the rank's GPU, or to its cores. */
static void place_nics(const struct machine *machine, const struct run_place_query *query,
                       hwloc_obj_t gpu, hwloc_const_bitmap_t cores, struct run_place *place)
{
    struct stepaf_topo_nics_query which = {.xml = query->xml,
                                           .core = place_core(machine, query, cores)};
    struct stepaf_topo_nics nics;
    char bus[32];
    int used = 0;

    if (gpu) {
        const struct hwloc_pcidev_attr_s *pci = &gpu->attr->pcidev;
        snprintf(bus, sizeof(bus), "%04x:%02x:%02x.%x", pci->domain, pci->bus, pci->dev, pci->func);
        which.gpu = bus;
    }
    if ((!gpu && which.core < 0) || !has_rdma(machine))
        return;
    stepaf_topo_nics_choose(&which, &nics);
    for (unsigned i = 0; i < nics.n; i++)
        used += snprintf(place->nics + used, sizeof(place->nics) - (size_t)used, "%s%s",
                         i ? "," : "", nics.name[i]);
    snprintf(place->nics_why, sizeof(place->nics_why), "%s", nics.why);
}

/* Write the list of @a cores; write nothing if it does not fit. */
static void write_cores(hwloc_const_bitmap_t cores, struct run_place *place)
{
    int n = hwloc_bitmap_list_snprintf(place->cores, sizeof(place->cores), cores);

    if (n < 0 || (size_t)n >= sizeof(place->cores))
        place->cores[0] = '\0';
}

int run_place_find(const struct run_place_query *query, struct run_place *place_p)
{
    struct machine machine;
    hwloc_obj_t gpu = NULL;
    hwloc_bitmap_t cores = hwloc_bitmap_alloc();

    *place_p = (struct run_place){0};
    if (!cores)
        return run_fail("out of memory");
    if (machine_open(query->xml, 1, &machine) != 0) {
        hwloc_bitmap_free(cores);
        return -1;
    }
    if (query->devices || query->bind == RUN_BIND_GPU)
        gpu = pick_gpu(&machine, query, place_p);
    if (query->bind == RUN_BIND_GPU)
        bind_gpu(&machine, gpu, cores, place_p);
    else if (query->bind == RUN_BIND_NUMA)
        bind_numa(&machine, query, cores);
    else if (query->bind != RUN_BIND_NONE)
        bind_core(&machine, query, cores, place_p);
    write_cores(cores, place_p);
    place_progress(&machine, gpu, cores, place_p);
    place_nics(&machine, query, gpu, cores, place_p);
    hwloc_bitmap_free(cores);
    machine_close(&machine);
    return 0;
}

int run_place_count_cores(void)
{
    struct machine machine;
    int n;

    if (machine_open(NULL, 0, &machine) != 0)
        return 1;
    n = count(&machine, HWLOC_OBJ_CORE);
    machine_close(&machine);
    return n > 0 ? n : 1;
}
