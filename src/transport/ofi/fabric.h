/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric, looked up at run time, and the choice of a provider. Without the library, only this
 * transport is unavailable. */
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

/* The functions that are called in the library itself; all others are called through the tables
 * that it returns. */
struct stepaf_ofi_library {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info_p);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric_p, void *context);
    const char *(*strerror)(int error);
    /* Not of the library: stepaf_topo_nics_choose and stepaf_topo_nics_core. */
    void (*nearest)(const struct stepaf_topo_nics_query *query, struct stepaf_topo_nics *nics_p);
    int (*core)(void);
};

/* Return the library, or its replacement in tests. NULL: there is none, and @a reason says why. */
const struct stepaf_ofi_library *stepaf_ofi_library(char *reason);

extern const struct stepaf_ofi_library *stepaf_ofi_library_fake; /* of tests; otherwise NULL */

/* Choose a provider: the one that the settings name or, if they name none, the best usable one. @a
 * infos_p gets one of its domains for each rail: those that the settings name; or, if the provider
 * says which NICs its domains belong to, those nearest to @a gpu (a PCI address, or NULL) or to
 * this thread's core; otherwise its first one. @a for_gpu: a provider and domains as they accept
 * GPU memory. Returns the number of domains; 0: @a reason says why not. @a refused, of
 * STEPAF_REASON_MAX characters, lists the other providers, and why they were rejected. */
unsigned stepaf_ofi_choose(const struct stepaf_ofi_library *library, const struct stepaf_env *env,
                           const char *gpu, bool for_gpu, struct fi_info *infos_p[STEPAF_OFI_RAILS],
                           char *refused, char *reason);

/* domains.c. Return the name of an info's provider, as settings and peers know it; "": none. efa has
 * two fabrics with different protocols, efa and efa-direct: then the name is the fabric's. */
const char *stepaf_ofi_name(const struct fi_info *info);
/* Find the domains of the provider of @a best in @a list, as stepaf_ofi_choose does, but
 * not copied. Returns 0 if there are none: @a reason says why not. */
unsigned stepaf_ofi_domains(const struct stepaf_ofi_library *library, const char *names,
                            const char *gpu, const struct fi_info *list, const struct fi_info *best,
                            const struct fi_info *infos_p[STEPAF_OFI_RAILS], char *reason);
/* Return why an info cannot be used. NULL: it can. */
const char *stepaf_ofi_objection(const struct fi_info *info);
/* Return whether a variable of libfabric's, which is off by default, is 1. */
bool stepaf_ofi_is_on(const char *variable);

#endif
