/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of machines, for the files of this directory that use hwloc. */
#ifndef STEPAF_TOPO_LOAD_H
#define STEPAF_TOPO_LOAD_H

#include <stdbool.h>

#include <hwloc.h>

/* Load this machine's topology, or with @a xml the one that is there: packages, NUMA nodes, caches,
 * cores and units, and with @a with_io devices, whose discovery takes far longer. NULL with errno
 * on failure. */
hwloc_topology_t stepaf_topo_load(const char *xml, unsigned long flags, bool with_io);

/* Whether a PCI device of that class and vendor computes: 3D controllers, accelerators, and the
 * display controllers of those who make GPUs; a server's own display is none. */
bool stepaf_topo_is_gpu_class(unsigned class_id, unsigned vendor_id);

/* The same of a device of hwloc's. */
bool stepaf_topo_is_gpu(hwloc_obj_t device);

#endif
