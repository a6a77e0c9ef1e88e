/* SPDX-License-Identifier: Apache-2.0 */
/* Load topologies, for the files of this directory that use hwloc. */
#ifndef STEPAF_TOPO_LOAD_H
#define STEPAF_TOPO_LOAD_H

#include <stdbool.h>

#include <hwloc.h>

/* Load this machine's topology, or the one in @a xml: packages, NUMA nodes, caches, cores and
 * units; if @a with_io also devices, whose discovery takes far longer. Returns NULL with errno on
 * failure. */
hwloc_topology_t stepaf_topo_load(const char *xml, unsigned long flags, bool with_io);

/* Return whether a PCI device of that class and vendor computes: 3D controllers, accelerators, and
 * display controllers of GPU vendors; a server's own display does not. */
bool stepaf_topo_is_gpu_class(unsigned class_id, unsigned vendor_id);

/* Return the same for an hwloc device. */
bool stepaf_topo_is_gpu(hwloc_obj_t device);

#endif
