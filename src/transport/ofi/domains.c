/* SPDX-License-Identifier: Apache-2.0 */
/* Which entries of the library's list can be used, and which domains of a provider become a rank's
 * rails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "transport/ofi/fabric.h"

enum { CANDIDATES = 64 };

static const char *text_of(const char *text)
{
    return text ? text : "";
}

const char *stepaf_ofi_name(const struct fi_info *info)
{
    const char *provider = text_of(info->fabric_attr->prov_name);
    const char *fabric = text_of(info->fabric_attr->name);

    return !strcmp(provider, "efa") && fabric[0] ? fabric : provider;
}

bool stepaf_ofi_is_on(const char *variable)
{
    const char *value = getenv(variable);

    return value && !strcmp(value, "1");
}

const char *stepaf_ofi_objection(const struct fi_info *info)
{
    const char *name = text_of(info->fabric_attr->prov_name);
    const uint64_t obeyed = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                            FI_MR_ENDPOINT | FI_MR_RMA_EVENT | FI_MR_HMEM;

    /* It then reads through a null pointer (2.1.0, of Debian 13, to 2.6.0), however the end closes.
     * Provider tcp of these versions does the same work without that. */
    if (!strcmp(name, "tcp;ofi_rxm") && FI_MAJOR(info->fabric_attr->prov_version) >= 201)
        return "since libfabric 2.1 it ends the process if a peer is in the middle of a write";
    /* By default, only cxi's messages carry data, whatever its cq_data_size. */
    if (!strcmp(name, "cxi") && !stepaf_ofi_is_on("FI_CXI_ENABLE_WRITEDATA"))
        return "its writes carry no data without FI_CXI_ENABLE_WRITEDATA=1, of libfabric 2.5";
    if (info->domain_attr->cq_data_size < sizeof(uint32_t))
        return "its writes carry fewer than 32 bits";
    if ((uint64_t)info->domain_attr->mr_mode & ~obeyed)
        return "it requires another way to register memory";
    if (info->mode & ~(FI_CONTEXT | FI_CONTEXT2))
        return "it requires another mode";
    return info->ep_attr->max_msg_size < 4096 ? "its writes are too short" : NULL;
}

/* Return whether memory, addresses and data of both are alike, as those of a rank's rails must
 * be. */
static bool is_alike(const struct fi_info *info, const struct fi_info *best)
{
    const struct fi_domain_attr *its = info->domain_attr, *other = best->domain_attr;

    return !strcmp(stepaf_ofi_name(info), stepaf_ofi_name(best)) && !stepaf_ofi_objection(info) &&
           info->addr_format == best->addr_format && its->mr_mode == other->mr_mode &&
           its->mr_key_size == other->mr_key_size && its->cq_data_size == other->cq_data_size &&
           info->ep_attr->max_msg_size == best->ep_attr->max_msg_size;
}

/* ---- by the settings ---- */

static bool has_name(const struct fi_info *info, const char *name, size_t bytes)
{
    const char *its = text_of(info->domain_attr->name);

    return strlen(its) == bytes && !memcmp(its, name, bytes);
}

/* Return whether an earlier info in the list names the same domain. */
static bool is_named_before(const struct fi_info *list, const struct fi_info *info)
{
    const char *its = text_of(info->domain_attr->name);

    while (list != info && !(is_alike(list, info) && has_name(list, its, strlen(its))))
        list = list->next;
    return list != info;
}

static void say_missing(const struct fi_info *list, const struct fi_info *first, const char *name,
                        size_t bytes, char *reason)
{
    int used = snprintf(
        reason, STEPAF_REASON_MAX,
        "STEPAF_OFI_DOMAINS: provider %.30s has no domain \"%.*s\"; its domains of one kind:",
        stepaf_ofi_name(first), bytes < 30 ? (int)bytes : 30, name);

    for (const struct fi_info *info = list; info; info = info->next)
        if (is_alike(info, first) && !is_named_before(list, info) && used < STEPAF_REASON_MAX)
            used += snprintf(reason + used, (size_t)(STEPAF_REASON_MAX - used), " %.30s",
                             text_of(info->domain_attr->name));
}

/* Find all named domains that are alike to @a first, which is the first of them. */
static unsigned follow_names(const char *names, const struct fi_info *list,
                             const struct fi_info *first,
                             const struct fi_info *infos_p[STEPAF_OFI_RAILS], char *reason)
{
    unsigned n = 0;

    for (bool more = true; more;) {
        size_t bytes = strcspn(names, ",");
        const struct fi_info *info = list;
        while (info && !(is_alike(info, first) && has_name(info, names, bytes)))
            info = info->next;
        for (unsigned i = 0; i < n && info; i++)
            if (infos_p[i] == info) {
                snprintf(reason, STEPAF_REASON_MAX, "STEPAF_OFI_DOMAINS: %.30s is listed twice",
                         info->domain_attr->name);
                return 0;
            }
        if (!info) {
            say_missing(list, first, names, bytes, reason);
            return 0;
        }
        if (n == STEPAF_OFI_RAILS) {
            snprintf(reason, STEPAF_REASON_MAX, "STEPAF_OFI_DOMAINS: more than %d domains",
                     STEPAF_OFI_RAILS);
            return 0;
        }
        infos_p[n++] = info;
        more = names[bytes] == ',';
        names += bytes + more;
    }
    return n;
}

/* A domain may be listed with several kinds of addresses, one of which the other domains must
 * have. */
static unsigned domains_by_name(const char *names, const struct fi_info *list,
                                const struct fi_info *best,
                                const struct fi_info *infos_p[STEPAF_OFI_RAILS], char *reason)
{
    size_t bytes = strcspn(names, ",");
    bool any = false;

    for (const struct fi_info *first = list; first; first = first->next) {
        if (!has_name(first, names, bytes) || !is_alike(first, first) ||
            strcmp(stepaf_ofi_name(first), stepaf_ofi_name(best)) != 0)
            continue;
        unsigned n = follow_names(names, list, first, infos_p, reason);
        if (n)
            return n;
        any = true;
    }
    if (!any)
        say_missing(list, best, names, bytes, reason);
    return 0;
}

/* ---- by their locations ---- */

/* Return the NIC to which a domain belongs; NULL: not known. */
static const char *nic_of(const struct fi_info *info)
{
    const struct fid_nic *nic = info->nic;

    return nic && nic->bus_attr && nic->bus_attr->bus_type == FI_BUS_PCI && nic->device_attr
               ? nic->device_attr->name
               : NULL;
}

static bool is_listed(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

static const struct fi_info *info_of_nic(const struct fi_info *list, const struct fi_info *best,
                                         const char *name)
{
    for (const struct fi_info *info = list; info; info = info->next) {
        const char *its = is_alike(info, best) ? nic_of(info) : NULL;
        if (its && !strcmp(its, name))
            return info;
    }
    return NULL;
}

static unsigned domains_by_place(const struct stepaf_ofi_library *library, const char *gpu,
                                 const struct fi_info *list, const struct fi_info *best,
                                 const struct fi_info *infos_p[STEPAF_OFI_RAILS])
{
    const char *names[CANDIDATES];
    struct stepaf_topo_nics nics = {.n = 0};
    size_t n_names = 0;
    unsigned n = 0;

    for (const struct fi_info *info = list; info && n_names < CANDIDATES; info = info->next) {
        const char *name = is_alike(info, best) ? nic_of(info) : NULL;
        if (name && !is_listed(names, n_names, name))
            names[n_names++] = name;
    }
    if (n_names > 1)
        library->nearest(
            &(struct stepaf_topo_nics_query){
                .gpu = gpu, .core = library->core(), .names = names, .n_names = n_names},
            &nics);
    for (unsigned i = 0; i < nics.n; i++)
        if ((infos_p[n] = info_of_nic(list, best, nics.name[i])))
            n++;
    if (!n)
        infos_p[n++] = best;
    return n;
}

unsigned stepaf_ofi_domains(const struct stepaf_ofi_library *library, const char *names,
                            const char *gpu, const struct fi_info *list, const struct fi_info *best,
                            const struct fi_info *infos_p[STEPAF_OFI_RAILS], char *reason)
{
    return names[0] ? domains_by_name(names, list, best, infos_p, reason)
                    : domains_by_place(library, gpu, list, best, infos_p);
}
