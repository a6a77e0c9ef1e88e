/* SPDX-License-Identifier: Apache-2.0 */
/* The part of topo that uses hwloc: printing, and the facts of machines given as XML. Also binding
 * of threads. */
#define _GNU_SOURCE 1 /* sched_setaffinity */

#include "topo/topo.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "topo/cpus.h"
#include "topo/load.h"
#include "topo/sys.h"

static size_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    return cache ? (size_t)cache->attr->cache.size : 0;
}

static void describe(hwloc_topology_t topology, struct stepaf_topo *topo_p)
{
    const char *host = hwloc_obj_get_info_by_name(hwloc_get_root_obj(topology), "HostName");
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology);
    int numa_nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);

    memset(topo_p, 0, sizeof *topo_p);
    snprintf(topo_p->host, sizeof topo_p->host, "%s", host ? host : "?");
    topo_p->node_id = stepaf_hash(STEPAF_HASH_START, topo_p->host, strlen(topo_p->host));
    topo_p->cores_machine = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    topo_p->cores_usable = hwloc_bitmap_weight(allowed);
    topo_p->numa_nodes = numa_nodes > 0 ? numa_nodes : 1;
    topo_p->l2_bytes = cache_bytes(topology, HWLOC_OBJ_L2CACHE);
    topo_p->l3_bytes = cache_bytes(topology, HWLOC_OBJ_L3CACHE);
    hwloc_bitmap_list_snprintf(topo_p->binding, sizeof topo_p->binding, allowed);
}

stepaf_status_t stepaf_topo_probe(const char *xml, struct stepaf_topo *topo_p)
{
    if (!xml) {
        struct stepaf_cpus usable;
        stepaf_cpus_usable(&usable);
        stepaf_sys_probe("", &usable, topo_p);
        return STEPAF_OK;
    }
    hwloc_topology_t topology =
        stepaf_topo_load(xml, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED, false);
    if (!topology)
        return stepaf_error_set(errno == ENOMEM ? STEPAF_ERR_NO_MEMORY : STEPAF_ERR_INVALID,
                                STEPAF_PHASE_INIT, "cannot load topology %s: %s", xml,
                                strerror(errno));
    describe(topology, topo_p);
    hwloc_topology_destroy(topology);
    return STEPAF_OK;
}

/* Add a name to a list of several; "+" means that there was no space for more. */
static void list_add(char *list, size_t capacity, const char *name)
{
    size_t used = strlen(list);

    if (used && list[used - 1] == '+')
        return;
    if (used + strlen(name) + 3 > capacity)
        snprintf(list + used, capacity - used, "+");
    else
        snprintf(list + used, capacity - used, "%s%s", used ? "," : "", name);
}

static int is_near(hwloc_topology_t topology, hwloc_obj_t device, hwloc_const_bitmap_t near)
{
    hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, device);

    return !near || (place && place->cpuset && hwloc_bitmap_intersects(place->cpuset, near));
}

static void list_devices(hwloc_topology_t topology, hwloc_const_bitmap_t near, char *gpus,
                         char *nics, size_t capacity)
{
    char name[32];

    for (hwloc_obj_t it = NULL; gpus && (it = hwloc_get_next_pcidev(topology, it));) {
        const struct hwloc_pcidev_attr_s *pci = &it->attr->pcidev;
        snprintf(name, sizeof name, "%04x:%02x:%02x.%x", (unsigned)pci->domain, pci->bus, pci->dev,
                 pci->func);
        if (stepaf_topo_is_gpu(it) && is_near(topology, it, near))
            list_add(gpus, capacity, name);
    }
    for (hwloc_obj_t it = NULL; nics && (it = hwloc_get_next_osdev(topology, it));)
        if (it->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS && is_near(topology, it, near))
            list_add(nics, capacity, it->name ? it->name : "?");
}

/* Return whether hwloc is told of another machine. */
static bool is_made_up(void)
{
    return getenv("HWLOC_XMLFILE") || getenv("HWLOC_FSROOT");
}

void stepaf_topo_devices(const char *xml, const char *binding, char *gpus_p, char *nics_p,
                         size_t capacity)
{
    gpus_p[0] = nics_p[0] = '\0';
    if (!xml && !is_made_up() && !stepaf_sys_may_have_devices(""))
        return;
    hwloc_topology_t topology = stepaf_topo_load(xml, 0, true);
    hwloc_bitmap_t near = hwloc_bitmap_alloc();
    if (topology && near && hwloc_bitmap_list_sscanf(near, binding) == 0)
        list_devices(topology, near, gpus_p, nics_p, capacity);
    if (topology)
        list_devices(topology, NULL, gpus_p[0] ? NULL : gpus_p, nics_p[0] ? NULL : nics_p,
                     capacity);
    hwloc_bitmap_free(near);
    if (topology)
        hwloc_topology_destroy(topology);
}

static stepaf_status_t bind_to_list(const char *cores)
{
    struct stepaf_cpus cpus;
    if (!stepaf_cpus_parse(cores, &cpus))
        return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT,
                                "\"%s\" is not a list of cores such as 3 or 0-1,4", cores);
    /* The kernel leaves out cores that the process's control group lacks, and rejects a list of
     * which nothing remains. */
    if (sched_setaffinity(0, sizeof cpus.bits, (const cpu_set_t *)cpus.bits) != 0)
        return stepaf_error_set(
            STEPAF_ERR_SETTING, STEPAF_PHASE_INIT, "cannot bind a thread to cores %s: %s", cores,
            errno == EINVAL ? "this process may use none of them" : strerror(errno));
    return STEPAF_OK;
}

/* The units that this adds to the thread's own mask are those that a launcher has merely not
 * chosen: the kernel leaves out the rest. Uses the kernel's files, since each commit starts the
 * progress thread anew, and hwloc would load all its plugins. */
static stepaf_status_t bind_near(void)
{
    struct stepaf_cpus own, near;

    errno = ENOSYS;
    if (stepaf_cpus_usable(&own)) {
        stepaf_sys_near("", &own, &near);
        if (!sched_setaffinity(0, sizeof near.bits, (const cpu_set_t *)near.bits))
            return STEPAF_OK;
    }
    return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_INIT,
                            "cannot bind a thread near its cores: %s", strerror(errno));
}

stepaf_status_t stepaf_topo_bind_thread(const char *cores)
{
    return cores && *cores ? bind_to_list(cores) : bind_near();
}

/* Checks by trying: only the kernel knows which cores it can give. */
stepaf_status_t stepaf_topo_check_cores(const char *cores)
{
    struct stepaf_cpus own;
    if (!cores || !*cores)
        return STEPAF_OK;
    int is_known = stepaf_cpus_usable(&own);
    stepaf_status_t status = bind_to_list(cores);
    if (is_known && status == STEPAF_OK)
        sched_setaffinity(0, sizeof own.bits, (const cpu_set_t *)own.bits);
    return status;
}

static void print_object(hwloc_obj_t object, int depth, FILE *stream);

static void print_children(hwloc_obj_t first, int depth, FILE *stream)
{
    for (hwloc_obj_t child = first; child; child = child->next_sibling)
        print_object(child, depth, stream);
}

static void print_object(hwloc_obj_t object, int depth, FILE *stream)
{
    char type[64];
    char attributes[192];
    hwloc_obj_type_snprintf(type, sizeof type, object, 1);
    hwloc_obj_attr_snprintf(attributes, sizeof attributes, object, " ", 0);

    fprintf(stream, "%*s%s", 2 * depth, "", type);
    if (object->os_index != HWLOC_UNKNOWN_INDEX && !hwloc_obj_type_is_io(object->type))
        fprintf(stream, " %u", object->os_index);
    if (object->name)
        fprintf(stream, " %s", object->name);
    if (*attributes)
        fprintf(stream, " (%s)", attributes);
    fputc('\n', stream);

    print_children(object->memory_first_child, depth + 1, stream);
    print_children(object->first_child, depth + 1, stream);
    print_children(object->io_first_child, depth + 1, stream);
}

void stepaf_topo_print(void *stream)
{
    hwloc_topology_t topology = stepaf_topo_load(NULL, 0, true);
    if (!topology) {
        fprintf(stream, "topology unknown: %s\n", strerror(errno));
        return;
    }
    print_object(hwloc_get_root_obj(topology), 0, stream);
    hwloc_topology_destroy(topology);
}
