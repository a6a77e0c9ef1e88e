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

/* What is called in the library itself; all else is called by the tables that it hands out. */
struct stepaf_ofi_library {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info_p);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric_p, void *context);
    const char *(*strerror)(int error);
};

/* The library, or one in its place in tests. NULL: there is none, and @a reason says why. */
const struct stepaf_ofi_library *stepaf_ofi_library(char *reason);

extern const struct stepaf_ofi_library *stepaf_ofi_library_fake; /* of tests; else NULL */

/* Choose a provider: @a name, or the best that can be used where that is empty. NULL: @a reason
 * says why not. @a refused, of STEPAF_REASON_MAX characters, says which others there are, and why
 * they were not taken. */
struct fi_info *stepaf_ofi_choose(const struct stepaf_ofi_library *library, const char *name,
                                  char *refused, char *reason);

#endif
