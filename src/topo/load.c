/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/load.h"

#include "base/fd.h"

/* hwloc components for devices that are not used, as sysfs knows all devices. "pci" is by
 * libpciaccess, which leaks. The others start GPU drivers, or connect to an X server, in the
 * caller's process: seen with an H100, "opencl" left 16 threads and 7 file descriptors behind.
 * hwloc ignores names that it does not have. */
static const char *const unwanted[] = {"pci", "opencl", "cuda", "nvml", "rsmi", "levelzero", "gl"};

hwloc_topology_t stepaf_topo_load(const char *xml, unsigned long flags, bool with_io)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return NULL;
    if (xml && hwloc_topology_set_xml(topology, xml) != 0)
        goto err_destroy;
#if HWLOC_API_VERSION >= 0x20500
    flags |= HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING; /* the caller's thread stays where it is */
#endif
    hwloc_topology_set_flags(topology, flags);
    if (with_io) {
        hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
        for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++)
            (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                                unwanted[i]);
    }
    stepaf_fd_begin();
    int failed = hwloc_topology_load(topology);
    (void)stepaf_fd_end(-1);
    if (failed)
        goto err_destroy;
    return topology;

err_destroy:
    hwloc_topology_destroy(topology);
    return NULL;
}

bool stepaf_topo_is_gpu_class(unsigned class_id, unsigned vendor_id)
{
    enum { NVIDIA = 0x10de, AMD = 0x1002, VGA = 0x0300, DISPLAY_3D = 0x0302, OTHER = 0x0380 };
    enum { ACCELERATOR = 0x1200 };

    return class_id == DISPLAY_3D || class_id == ACCELERATOR ||
           ((class_id == VGA || class_id == OTHER) && (vendor_id == NVIDIA || vendor_id == AMD));
}

bool stepaf_topo_is_gpu(hwloc_obj_t device)
{
    return stepaf_topo_is_gpu_class(device->attr->pcidev.class_id, device->attr->pcidev.vendor_id);
}
