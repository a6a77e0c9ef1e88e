/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup of the library, and choice of a provider. */
#include "transport/ofi/fabric.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/handlers.h"
#include "settings/settings.h"

const struct stepaf_ofi_library *stepaf_ofi_library_fake;

static struct stepaf_ofi_library fabric_real;
static bool fabric_usable;
static char fabric_reason[STEPAF_REASON_MAX];

/* getinfo is asked for the interface of version 1.17, which these headers describe. */
static const struct {
    const char *name;
    size_t at;
} fabric_entries[] = {
    {"fi_getinfo", offsetof(struct stepaf_ofi_library, getinfo)},
    {"fi_freeinfo", offsetof(struct stepaf_ofi_library, freeinfo)},
    {"fi_dupinfo", offsetof(struct stepaf_ofi_library, dupinfo)},
    {"fi_fabric", offsetof(struct stepaf_ofi_library, fabric)},
    {"fi_strerror", offsetof(struct stepaf_ofi_library, strerror)},
};

static void fabric_load(void)
{
    void *library = stepaf_load_without_handlers("libfabric.so.1");

    if (!library) {
        snprintf(fabric_reason, sizeof(fabric_reason), "no libfabric: %.150s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof(fabric_entries) / sizeof(fabric_entries[0]); i++) {
        void *function = dlsym(library, fabric_entries[i].name);
        if (!function) {
            snprintf(fabric_reason, sizeof(fabric_reason), "this libfabric has no %s",
                     fabric_entries[i].name);
            return;
        }
        memcpy((char *)&fabric_real + fabric_entries[i].at, &function, sizeof(function));
    }
    fabric_real.nearest = stepaf_topo_nics_choose;
    fabric_real.core = stepaf_topo_nics_core;
    fabric_usable = true;
}

const struct stepaf_ofi_library *stepaf_ofi_library(char *reason)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (stepaf_ofi_library_fake)
        return stepaf_ofi_library_fake;
    (void)pthread_once(&once, fabric_load);
    if (!fabric_usable)
        snprintf(reason, STEPAF_REASON_MAX, "%s", fabric_reason);
    return fabric_usable ? &fabric_real : NULL;
}

/* Best first, by stepaf_ofi_name. shm is not in the list: it reaches only one node, where the library's own transport
 * does better. */
static const char *const fabric_order[] = {"efa-direct",  "efa", "verbs;ofi_rxm", "psm3",   "psm2",
                                           "tcp;ofi_rxm", "tcp", "net",           "sockets"};
enum { ORDERED = sizeof(fabric_order) / sizeof(fabric_order[0]) };

static unsigned provider_place(const struct fi_info *info, const char *name)
{
    const char *its = stepaf_ofi_name(info);
    unsigned place = 0;

    if (its[0] && !strcmp(name, its))
        return 0;
    while (place < ORDERED && strcmp(its, fabric_order[place]) != 0)
        place++;
    return name[0] ? ORDERED : place;
}

/* Return whether the list has an entry for this name, which may be a part of another name. */
static bool has_note(const char *refused, const char *name)
{
    size_t bytes = strlen(name);

    for (const char *at = refused; (at = strstr(at, name)); at += bytes)
        if ((at == refused || at[-1] == ' ') && !strncmp(at + bytes, " (", 2))
            return true;
    return false;
}

static void note(char *refused, const struct fi_info *info, const char *why)
{
    size_t used = strlen(refused);
    const char *its = stepaf_ofi_name(info)[0] ? stepaf_ofi_name(info) : "?";

    if (!has_note(refused, its) && used + strlen(its) + strlen(why) + 5 < STEPAF_REASON_MAX)
        snprintf(refused + used, STEPAF_REASON_MAX - used, "%s%s (%s)", used ? ", " : "", its, why);
}

static struct fi_info *hints_make(const struct stepaf_ofi_library *library, bool for_gpu)
{
    struct fi_info *hints = library->dupinfo(NULL);

    if (!hints)
        return NULL;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    if (for_gpu) {
        hints->caps |= FI_HMEM;
        hints->domain_attr->mr_mode |= FI_MR_HMEM;
    }
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    return hints;
}

/* Return all that the library offers; @a for_gpu: that accepts GPU memory. NULL: @a reason says why
 * not. */
static struct fi_info *list_all(const struct stepaf_ofi_library *library, bool for_gpu,
                                char *reason)
{
    struct fi_info *hints = hints_make(library, for_gpu), *list = NULL;

    if (!hints) {
        snprintf(reason, STEPAF_REASON_MAX, "out of memory");
        return NULL;
    }
    stepaf_fd_begin();
    int error = library->getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &list);
    (void)stepaf_fd_end(-1);
    library->freeinfo(hints);
    if (error)
        snprintf(reason, STEPAF_REASON_MAX, "libfabric has no provider of reliable datagrams: %s",
                 library->strerror(-error));
    return error ? NULL : list;
}

/* Return the first info of the best provider, and what is said about the others. */
static const struct fi_info *best_provider(const struct fi_info *list, const char *name,
                                           char *refused)
{
    const struct fi_info *best = NULL;

    for (const struct fi_info *info = list; info; info = info->next) {
        const char *why = stepaf_ofi_objection(info);
        unsigned place = provider_place(info, name);
        if (!why && place == ORDERED)
            why = name[0] ? "not requested" : "only on request";
        if (why)
            note(refused, info, why);
        else if (!best || place < provider_place(best, name))
            best = info;
    }
    for (const struct fi_info *info = list; best && info; info = info->next)
        if (strcmp(stepaf_ofi_name(info), stepaf_ofi_name(best)) != 0)
            note(refused, info, "not the best");
    return best;
}

/* Replace the list that has @a best by the list for GPU memory, and return the same provider there;
 * NULL: it does not accept GPU memory. */
static const struct fi_info *list_for_gpu(const struct stepaf_ofi_library *library,
                                          struct fi_info **list_p, const struct fi_info *best)
{
    char ignored[2][STEPAF_REASON_MAX] = {"", ""};
    struct fi_info *plain = *list_p;

    *list_p = list_all(library, true, ignored[0]);
    const struct fi_info *taking = best_provider(*list_p, stepaf_ofi_name(best), ignored[1]);
    library->freeinfo(plain);
    return taking;
}

unsigned stepaf_ofi_choose(const struct stepaf_ofi_library *library, const struct stepaf_env *env,
                           const char *gpu, bool for_gpu, struct fi_info *infos_p[STEPAF_OFI_RAILS],
                           char *refused, char *reason)
{
    const struct fi_info *found[STEPAF_OFI_RAILS];
    struct fi_info *list = list_all(library, false, reason);
    unsigned n = 0, n_taken = 0;

    refused[0] = '\0';
    const struct fi_info *best = best_provider(list, env->ofi_provider, refused);
    if (best && for_gpu)
        best = list_for_gpu(library, &list, best);
    if (best)
        n = stepaf_ofi_domains(library, env->ofi_domains, gpu, list, best, found, reason);
    else if (list)
        snprintf(reason, STEPAF_REASON_MAX, "libfabric has no provider %.40s: %.100s",
                 env->ofi_provider[0] ? env->ofi_provider : "of the usual ones",
                 refused[0] ? refused : "libfabric lists none");
    while (n_taken < n && (infos_p[n_taken] = library->dupinfo(found[n_taken])))
        n_taken++;
    if (n_taken < n) {
        snprintf(reason, STEPAF_REASON_MAX, "out of memory");
        while (n_taken)
            library->freeinfo(infos_p[--n_taken]);
    }
    if (list)
        library->freeinfo(list);
    return n_taken;
}
