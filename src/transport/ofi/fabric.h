/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric, which is looked up at run time: without it, this transport alone is missing. */
#ifndef STEPAF_TRANSPORT_OFI_FABRIC_H
#define STEPAF_TRANSPORT_OFI_FABRIC_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdint.h>

#include "topo/nics.h"

struct stepaf_env;

enum { STEPAF_OFI_RAILS = STEPAF_TOPO_NICS_MAX };

/* What is called in the library itself; all else is called by the tables that it hands out. */
struct stepaf_ofi_library {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info_p);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric_p, void *context);
    const char *(*strerror)(int error);
    /* Not the library's: stepaf_topo_nics_choose and stepaf_topo_nics_core. */
    void (*nearest)(const struct stepaf_topo_nics_query *query, struct stepaf_topo_nics *nics_p);
    int (*core)(void);
};

/* The library, or one in its place in tests. NULL: there is none, and @a reason says why. */
const struct stepaf_ofi_library *stepaf_ofi_library(char *reason);

extern const struct stepaf_ofi_library *stepaf_ofi_library_fake; /* of tests; else NULL */

/* Choose a provider: that of the settings, or the best that can be used where they name none.
 * @a infos_p gets a domain of it for each rail, which are those of the settings; or, where the
 * provider says which network cards they are of, those that are nearest to @a gpu (a PCI address,
 * or NULL) or to this thread's core; else its first one. @a for_gpu: that provider, and those of its
 * domains, as they take GPU memory. Returns how many; 0: @a reason says why
 * not. @a refused, of STEPAF_REASON_MAX characters, says which other providers there are, and why
 * they were not taken. */
unsigned stepaf_ofi_choose(const struct stepaf_ofi_library *library, const struct stepaf_env *env,
                           const char *gpu, bool for_gpu, struct fi_info *infos_p[STEPAF_OFI_RAILS],
                           char *refused, char *reason);

/* domains.c. The domains of the provider of @a best, in @a list: as above, but not copies. 0: @a
 * reason says why not. */
unsigned stepaf_ofi_domains(const struct stepaf_ofi_library *library, const char *names,
                            const char *gpu, const struct fi_info *list, const struct fi_info *best,
                            const struct fi_info *infos_p[STEPAF_OFI_RAILS], char *reason);
/* Why an info cannot be used. NULL: it can. */
const char *stepaf_ofi_objection(const struct fi_info *info);

#endif
