/* SPDX-License-Identifier: Apache-2.0 */
#include "ofi_infos.h"

#include <stdlib.h>
#include <string.h>

#include "ofi_fabric.h"
#include "ofi_gpu.h"

void ofi_infos_nearest(const struct stepaf_topo_nics_query *query, struct stepaf_topo_nics *nics_p)
{
    static char path[4096];
    const char *top = getenv("top_srcdir");
    struct stepaf_topo_nics_query there = *query;

    snprintf(path, sizeof(path), "%s/test/unit/topo/%s", top ? top : ".", ofi_fabric.topology);
    there.xml = path;
    stepaf_topo_nics_choose(&there, nics_p);
}

int ofi_infos_core(void)
{
    return ofi_fabric.core;
}

/* An info with all that hangs on it. */
struct whole {
    struct fi_info info; /* first */
    struct fid_nic nic;
    struct fi_bus_attr bus;
    struct fi_device_attr device;
    struct fi_tx_attr tx;
    struct fi_rx_attr rx;
    struct fi_ep_attr ep;
    struct fi_domain_attr domain;
    struct fi_fabric_attr fabric;
};

struct fi_info *ofi_infos_dupinfo(const struct fi_info *info)
{
    struct whole *whole = calloc(1, sizeof(*whole));

    if (!whole)
        return NULL;
    if (info)
        memcpy(whole, info, sizeof(*whole));
    whole->info.next = NULL;
    whole->info.tx_attr = &whole->tx;
    whole->info.rx_attr = &whole->rx;
    whole->info.ep_attr = &whole->ep;
    whole->info.domain_attr = &whole->domain;
    whole->info.fabric_attr = &whole->fabric;
    whole->nic.bus_attr = &whole->bus;
    whole->nic.device_attr = &whole->device;
    whole->info.nic = whole->device.name ? &whole->nic : NULL;
    return &whole->info;
}

void ofi_infos_freeinfo(struct fi_info *info)
{
    while (info) {
        struct fi_info *next = info->next;
        free(info);
        info = next;
    }
}

/* The @a at-th domain of a provider. */
static struct fi_info *make_info(const char *provider, unsigned at)
{
    struct fi_info *info = ofi_infos_dupinfo(NULL);

    if (!info)
        return NULL;
    info->mode = ofi_fabric.mode;
    /* efa's fabric has one of two names; another provider's that of a subnet. */
    bool is_efa = !strncmp(provider, "efa", 3);
    info->fabric_attr->prov_name = (char *)(uintptr_t)(is_efa ? "efa" : provider);
    info->fabric_attr->name = (char *)(uintptr_t)(is_efa ? provider : "10.1.0.0/16");
    info->fabric_attr->prov_version = ofi_fabric.prov_version;
    info->addr_format = ofi_fabric.addr_format;
    info->domain_attr->name = (char *)(uintptr_t)ofi_fabric.domains[at];
    info->domain_attr->mr_mode = (int)ofi_fabric.mr_mode;
    info->domain_attr->mr_key_size = ofi_fabric.key_bytes;
    info->domain_attr->cq_data_size = ofi_fabric.cq_data_size;
    info->ep_attr->max_msg_size = ofi_fabric.max_msg;
    info->tx_attr->size = ofi_fabric.depth;
    if (ofi_fabric.nics) {
        struct whole *whole = (struct whole *)info;
        whole->bus.bus_type = FI_BUS_PCI;
        whole->device.name = (char *)(uintptr_t)ofi_fabric.nics[at];
        info->nic = &whole->nic;
    }
    return info;
}

int ofi_infos_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                      const struct fi_info *hints, struct fi_info **info_p)
{
    struct fi_info **end = info_p;

    (void)node;
    (void)service;
    (void)flags;
    if (hints->caps & FI_HMEM && !ofi_gpu.n_listed)
        return -FI_ENODATA;
    side_must(version == FI_VERSION(1, 17) && hints->ep_attr->type == FI_EP_RDM &&
                  hints->caps & FI_RMA,
              "hints");
    *info_p = NULL;
    for (const char *const *name = ofi_fabric.names; *name; name++)
        for (unsigned d = 0;
             ofi_fabric.domains[d] && (!(hints->caps & FI_HMEM) || d < ofi_gpu.n_listed); d++) {
            *end = make_info(*name, d);
            if (!*end) {
                ofi_infos_freeinfo(*info_p);
                return -FI_ENOMEM;
            }
            (*end)->caps = hints->caps;
            (*end)->domain_attr->mr_mode |= hints->domain_attr->mr_mode & FI_MR_HMEM;
            end = &(*end)->next;
        }
    return *info_p ? 0 : -FI_ENODATA;
}

const char *ofi_infos_strerror(int error)
{
    return error == FI_ECONNRESET ? "the connection was reset" : strerror(error);
}
