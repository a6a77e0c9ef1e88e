/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing, and the table. */
#include "transport/ofi/ofi.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/time.h"

enum { CQ_ENTRIES = 4096, PAGE = 4096, CLOSE_MS = 1000 };

static bool ofi_probe(const struct stepaf_env *env, char *reason)
{
    const struct stepaf_ofi_library *library = stepaf_ofi_library(reason);
    char refused[STEPAF_REASON_MAX];

    if (!library)
        return false;
    struct fi_info *info = stepaf_ofi_choose(library, env->ofi_provider, refused, reason);
    if (!info)
        return false;
    library->freeinfo(info);
    snprintf(reason, STEPAF_REASON_MAX, "%s%.170s", refused[0] ? "not taken: " : "", refused);
    return true;
}

static void close_fid(struct fid *fid)
{
    if (fid)
        (void)fi_close(fid);
}

static void ofi_close(struct stepaf_transport *transport)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    struct stepaf_ofi_fabric *f = &ofi->f;
    int64_t end = stepaf_monotonic_ns() + CLOSE_MS * 1000000LL;

    for (uint32_t p = 0; ofi->links && p < ofi->shared.n_peers; p++)
        stepaf_ofi_disconnect(&ofi->links[p].shared.base); /* nothing is delivered any more */
    while (f->cq && ofi->links && stepaf_fabric_has_pending(&ofi->shared) &&
           stepaf_monotonic_ns() < end)
        (void)stepaf_ofi_progress(transport, 1);
    if (f->ep && f->cq && ofi->links)
        stepaf_ofi_end(ofi);
    stepaf_ofi_sockets_cut(ofi);
    end = stepaf_monotonic_ns() + CLOSE_MS * 1000000LL;
    while (f->cq && stepaf_ofi_sockets_are_open(ofi) && stepaf_monotonic_ns() < end)
        (void)stepaf_ofi_progress(transport, 1);
    stepaf_ofi_sockets_forget(ofi);
    if (f->info && f->info->domain_attr->mr_mode & FI_MR_ENDPOINT)
        while (ofi->registrations)
            stepaf_ofi_unregister(ofi->registrations);
    close_fid(f->ep ? &f->ep->fid : NULL);
    while (ofi->registrations)
        stepaf_ofi_unregister(ofi->registrations);
    close_fid(f->cq ? &f->cq->fid : NULL);
    close_fid(f->av ? &f->av->fid : NULL);
    close_fid(f->domain ? &f->domain->fid : NULL);
    close_fid(f->fabric ? &f->fabric->fid : NULL);
    if (f->info)
        f->calls->freeinfo(f->info);
    free(ofi->slots);
    free(ofi->ops);
    free(ofi->links);
    free(ofi);
}

static int open_fabric(struct stepaf_ofi_fabric *f)
{
    struct fi_cq_attr cq_attr = {.size = CQ_ENTRIES, .format = FI_CQ_FORMAT_DATA};
    struct fi_av_attr av_attr = {.type = FI_AV_UNSPEC};
    int error = f->calls->fabric(f->info->fabric_attr, &f->fabric, NULL);

    if (!error)
        error = fi_domain(f->fabric, f->info, &f->domain, NULL);
    if (!error)
        error = fi_av_open(f->domain, &av_attr, &f->av, NULL);
    if (!error)
        error = fi_cq_open(f->domain, &cq_attr, &f->cq, NULL);
    if (!error)
        error = fi_endpoint(f->domain, f->info, &f->ep, NULL);
    if (!error)
        error = fi_ep_bind(f->ep, &f->av->fid, 0);
    if (!error)
        error = fi_ep_bind(f->ep, &f->cq->fid, FI_TRANSMIT | FI_RECV);
    if (!error)
        error = fi_enable(f->ep);
    f->address_bytes = sizeof(f->address);
    return error ? error : fi_getname(&f->ep->fid, f->address, &f->address_bytes);
}

static const uint8_t *slots_of(const struct stepaf_fabric_link *link)
{
    return (const uint8_t *)stepaf_ofi_slot((struct stepaf_ofi *)stepaf_fabric_of(link), false,
                                            link->base.peer, 0);
}

/* Memory of this rank alone. */
static bool ofi_make_room(struct stepaf_ofi *ofi, unsigned n_peers)
{
    static const struct stepaf_fabric_calls calls = {
        .control = stepaf_ofi_control, .slots = slots_of, .set_aside = stepaf_ofi_set_aside};
    size_t bytes = (size_t)2 * n_peers * STEPAF_OFI_PLACES * STEPAF_FABRIC_SLOT;

    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    ofi->ops = calloc(STEPAF_OFI_OPS, sizeof(*ofi->ops));
    ofi->slots = aligned_alloc(PAGE, bytes);
    if (!ofi->ops || !ofi->slots ||
        stepaf_fabric_open(&ofi->shared, n_peers, sizeof(*ofi->links)) != 0)
        return false;
    ofi->links = ofi->shared.links;
    ofi->shared.calls = &calls;
    ofi->shared.timeout_us = &ofi->shared.base.up->env->ofi_peer_timeout_us;
    ofi->is_due = true;
    memset(ofi->slots, 0, bytes);
    ofi->slots_mem = (struct stepaf_mem){.base = ofi->slots, .bytes = bytes, .fd = -1};
    for (int i = 0; i < STEPAF_OFI_OPS; i++) {
        ofi->ops[i].next = ofi->free_op;
        ofi->free_op = &ofi->ops[i];
    }
    return true;
}

static int open_all(struct stepaf_ofi *ofi)
{
    int error;

    stepaf_fd_begin();
    error = open_fabric(&ofi->f);
    if (!error)
        ofi->slots_mem.registration[0] =
            stepaf_ofi_register(ofi, ofi->slots, ofi->slots_mem.bytes, &error);
    (void)stepaf_fd_end(-1);
    ofi->shared.name = ofi->f.info->fabric_attr->prov_name;
    ofi->shared.strerror = ofi->f.calls->strerror;
    ofi->is_wide = ofi->f.info->domain_attr->cq_data_size >= sizeof(uint64_t);
    ofi->ends_together = stepaf_ofi_ends_together(ofi->f.info);
    ofi->piece_max = ofi->f.info->ep_attr->max_msg_size;
    if (ofi->piece_max > 1U << 30)
        ofi->piece_max = 1U << 30;
    return error;
}

static stepaf_status_t ofi_open(struct stepaf_upcalls *up, unsigned n_peers,
                                struct stepaf_transport **transport_p)
{
    char reason[STEPAF_REASON_MAX] = "", refused[STEPAF_REASON_MAX];
    struct stepaf_ofi *ofi;

    if (n_peers > STEPAF_FABRIC_PEERS)
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                "ofi: no more than %d peers", STEPAF_FABRIC_PEERS);
    ofi = calloc(1, sizeof(*ofi));
    if (!ofi)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    ofi->shared.base = (struct stepaf_transport){.ops = &stepaf_ofi_ops, .up = up};
    if (!ofi_make_room(ofi, n_peers)) {
        ofi_close(&ofi->shared.base);
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    }
    ofi->f.calls = stepaf_ofi_library(reason);
    if (ofi->f.calls)
        ofi->f.info = stepaf_ofi_choose(ofi->f.calls, up->env->ofi_provider, refused, reason);
    int error = ofi->f.info ? open_all(ofi) : 0;
    if (error)
        snprintf(reason, sizeof(reason), "%.60s: cannot open: %.100s",
                 ofi->f.info->fabric_attr->prov_name, ofi->f.calls->strerror(-error));
    if (!ofi->f.info || error) {
        ofi_close(&ofi->shared.base);
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, "ofi: %s", reason);
    }
    *transport_p = &ofi->shared.base;
    return STEPAF_OK;
}

/* All links are proven: what libfabric connects has been connected. */
static void ofi_shrink(struct stepaf_transport *transport)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;

    if (!ofi->settled)
        stepaf_ofi_sockets_find(ofi);
    ofi->settled = true;
}

/* Of links that are there each says its address itself. */
static void ofi_describe(const struct stepaf_transport *transport, char *text)
{
    const struct stepaf_ofi *ofi = (const struct stepaf_ofi *)transport;
    const char *domain = ofi->f.info->domain_attr->name;
    char address[STEPAF_LINK_ADDRESS] = "";

    if (!ofi->settled)
        stepaf_ofi_address_text(ofi, address);
    snprintf(text, STEPAF_REASON_MAX, "%.40s, domain %.30s%s%s",
             ofi->f.info->fabric_attr->prov_name, domain ? domain : "?",
             address[0] ? ", address " : "", address);
}

static void ofi_query_memory(struct stepaf_transport *transport, size_t *per_link_p,
                             size_t *staging_p)
{
    (void)transport;
    *per_link_p =
        sizeof(struct stepaf_ofi_link) + (size_t)2 * STEPAF_OFI_PLACES * STEPAF_FABRIC_SLOT;
    *staging_p = 0;
}

const struct stepaf_transport_ops stepaf_ofi_ops = {
    .name = "ofi",
    .caps = STEPAF_TRANSPORT_ASKED,
    .probe = ofi_probe,
    .open = ofi_open,
    .close = ofi_close,
    .describe = ofi_describe,
    .reg_mem = stepaf_ofi_reg_mem,
    .dereg_mem = stepaf_ofi_dereg_mem,
    .is_quiet = stepaf_fabric_is_quiet,
    .pack_address = stepaf_ofi_pack_address,
    .pack_mem = stepaf_ofi_pack_mem,
    .connect = stepaf_ofi_connect,
    .disconnect = stepaf_ofi_disconnect,
    .finish_connects = stepaf_fabric_finish_connects,
    .prove_links = stepaf_fabric_prove_links,
    .shrink = ofi_shrink,
    .import_mem = stepaf_ofi_import_mem,
    .release_mem = stepaf_ofi_release_mem,
    .post = stepaf_ofi_post,
    .retire = stepaf_fabric_retire,
    .progress = stepaf_ofi_progress,
    .check_peers = stepaf_fabric_check_peers,
    .query_memory = ofi_query_memory,
};
