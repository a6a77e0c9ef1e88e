/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of libfabric: opening of the library, and an endpoint like the stepaf library's. */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "fail.h"
#include "ofi_state.h"

enum { CQ_ENTRIES = 4096, KEY = 0x5afe };

static int look_up(struct perf_ofi *ofi)
{
    static const struct {
        const char *name;
        size_t at;
    } entries[] = {
        {"fi_getinfo", offsetof(struct perf_ofi_library, getinfo)},
        {"fi_freeinfo", offsetof(struct perf_ofi_library, freeinfo)},
        {"fi_dupinfo", offsetof(struct perf_ofi_library, dupinfo)},
        {"fi_fabric", offsetof(struct perf_ofi_library, fabric)},
        {"fi_strerror", offsetof(struct perf_ofi_library, strerror)},
    };
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL); /* for good */

    if (library == NULL)
        return perf_fail("plain libfabric: %s", dlerror());
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *function = dlsym(library, entries[i].name);

        if (function == NULL)
            return perf_fail("plain libfabric: libfabric has no %s", entries[i].name);
        memcpy((char *)&ofi->calls + entries[i].at, &function, sizeof(function));
    }
    return 0;
}

/* Return whether the library calls this provider so: efa's fabrics, efa and efa-direct, count as
 * two. */
static int has_name(const struct fi_info *info, const char *provider)
{
    const char *its = info->fabric_attr->prov_name, *fabric = info->fabric_attr->name;

    if (its != NULL && fabric != NULL && strcmp(its, "efa") == 0)
        its = fabric;
    return its != NULL && strcmp(its, provider) == 0;
}

/* Request what the stepaf library requests. */
static int find_provider(struct perf_ofi *ofi, const char *provider)
{
    struct fi_info *hints = ofi->calls.dupinfo(NULL);
    int error;

    if (hints == NULL)
        return perf_fail("out of memory");
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    error = ofi->calls.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &ofi->list);
    ofi->calls.freeinfo(hints);
    if (error != 0)
        return perf_fail("plain libfabric: %s", ofi->calls.strerror(-error));
    for (ofi->info = ofi->list; ofi->info != NULL; ofi->info = ofi->info->next)
        if (provider[0] == '\0' || has_name(ofi->info, provider)) {
            ofi->by_writedata = has_name(ofi->info, "cxi");
            return 0;
        }
    return perf_fail("plain libfabric: no provider %s", provider);
}

static int open_endpoint(struct perf_ofi *ofi)
{
    struct fi_cq_attr cq_attr = {.size = CQ_ENTRIES, .format = FI_CQ_FORMAT_DATA};
    struct fi_av_attr av_attr = {.type = FI_AV_UNSPEC};
    int error = ofi->calls.fabric(ofi->info->fabric_attr, &ofi->fabric, NULL);

    if (error == 0)
        error = fi_domain(ofi->fabric, ofi->info, &ofi->domain, NULL);
    if (error == 0)
        error = fi_av_open(ofi->domain, &av_attr, &ofi->av, NULL);
    if (error == 0)
        error = fi_cq_open(ofi->domain, &cq_attr, &ofi->cq, NULL);
    if (error == 0)
        error = fi_endpoint(ofi->domain, ofi->info, &ofi->ep, NULL);
    if (error == 0)
        error = fi_ep_bind(ofi->ep, &ofi->av->fid, 0);
    if (error == 0)
        error = fi_ep_bind(ofi->ep, &ofi->cq->fid, FI_TRANSMIT | FI_RECV);
    if (error == 0)
        error = fi_enable(ofi->ep);
    if (error == 0)
        error = fi_mr_reg(ofi->domain, ofi->buffers->base, ofi->buffers->bytes,
                          FI_WRITE | FI_REMOTE_WRITE, 0, KEY, 0, &ofi->mr, NULL);
    if (error == 0 && ofi->info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
        error = fi_mr_bind(ofi->mr, &ofi->ep->fid, 0);
        if (error == 0)
            error = fi_mr_enable(ofi->mr);
    }
    return error;
}

int perf_ofi_fabric_open(struct perf_ofi *ofi, const char *provider, struct perf_ofi_end *end_p)
{
    size_t bytes = sizeof(end_p->address);
    int error;

    if (look_up(ofi) != 0 || find_provider(ofi, provider) != 0)
        return -1;
    error = open_endpoint(ofi);
    if (error == 0)
        error = fi_getname(&ofi->ep->fid, end_p->address, &bytes);
    if (error != 0)
        return perf_fail("plain libfabric: %s", ofi->calls.strerror(-error));
    end_p->address_bytes = (uint32_t)bytes;
    end_p->key = fi_mr_key(ofi->mr);
    end_p->base = ofi->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
                      ? (uint64_t)(uintptr_t)ofi->buffers->base
                      : 0;
    return 0;
}

static void close_one(struct fid *fid)
{
    if (fid != NULL)
        (void)fi_close(fid);
}

void perf_ofi_fabric_close(struct perf_ofi *ofi)
{
    close_one(ofi->mr != NULL ? &ofi->mr->fid : NULL);
    close_one(ofi->ep != NULL ? &ofi->ep->fid : NULL);
    close_one(ofi->cq != NULL ? &ofi->cq->fid : NULL);
    close_one(ofi->av != NULL ? &ofi->av->fid : NULL);
    close_one(ofi->domain != NULL ? &ofi->domain->fid : NULL);
    close_one(ofi->fabric != NULL ? &ofi->fabric->fid : NULL);
    if (ofi->list != NULL)
        ofi->calls.freeinfo(ofi->list);
}
