/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "info.h"
#include "topo/topo.h"

static void print_bytes(const char *what, size_t bytes)
{
    if (bytes)
        printf("%-16s %zu KiB\n", what, bytes >> 10);
    else
        printf("%-16s unknown\n", what);
}

int info_topology(int with_tree)
{
    struct stepaf_topo topo;
    if (stepaf_topo_probe(NULL, &topo) != STEPAF_OK)
        return info_failed("topology");
    printf("%-16s %s (id %016" PRIx64 ")\n", "node", topo.host, topo.node_id);
    printf("%-16s %d of the machine's %d\n", "cores to use", topo.cores_usable, topo.cores_machine);
    printf("%-16s %s\n", "bound to", *topo.binding ? topo.binding : "unknown");
    printf("%-16s %d\n", "NUMA nodes", topo.numa_nodes);
    print_bytes("L2 of a core", topo.l2_bytes);
    print_bytes("L3", topo.l3_bytes);
    if (with_tree) {
        putchar('\n');
        stepaf_topo_print(stdout);
    }
    return 1;
}
