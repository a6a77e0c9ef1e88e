/* SPDX-License-Identifier: Apache-2.0 */
/* What the made-up libfabric lists: a provider for each name, each with the same domains, as
 * ofi_fabric says; and where their network cards are. */
#ifndef STEPAF_TEST_OFI_INFOS_H
#define STEPAF_TEST_OFI_INFOS_H

#include "transport/ofi/fabric.h"

void ofi_infos_nearest(const struct stepaf_topo_nics_query *query, struct stepaf_topo_nics *nics_p);
int ofi_infos_core(void);
struct fi_info *ofi_infos_dupinfo(const struct fi_info *info);
void ofi_infos_freeinfo(struct fi_info *info);
int ofi_infos_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                      const struct fi_info *hints, struct fi_info **info_p);
const char *ofi_infos_strerror(int error);

#endif
