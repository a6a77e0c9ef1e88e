/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing of the transport, and its table of functions. */
#include "transport/ofi/ofi.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/time.h"
#include "transport/try_gpu.h"

enum { CLOSE_MS = 1000 };

static bool ofi_probe(const struct stepaf_env *env, char *reason)
{
    const struct stepaf_ofi_library *library = stepaf_ofi_library(reason);
    struct fi_info *infos[STEPAF_OFI_RAILS];
    char refused[STEPAF_REASON_MAX];

    if (!library)
        return false;
    unsigned n = stepaf_ofi_choose(library, env, NULL, false, infos, refused, reason);
    if (!n)
        return false;
    while (n)
        library->freeinfo(infos[--n]);
    snprintf(reason, STEPAF_REASON_MAX, "%s%.170s", refused[0] ? "not used: " : "", refused);
    return true;
}

static void free_registrations(struct stepaf_ofi *ofi)
{
    while (ofi->registrations)
        stepaf_ofi_unregister(ofi, ofi->registrations);
}

static void close_rails(struct stepaf_ofi *ofi)
{
    if (ofi->n_rails && ofi->rails[0].info->domain_attr->mr_mode & FI_MR_ENDPOINT)
        free_registrations(ofi);
    for (unsigned r = 0; r < ofi->n_rails; r++)
        stepaf_ofi_close_endpoint(&ofi->rails[r]);
    free_registrations(ofi);
    for (unsigned r = 0; r < ofi->n_rails; r++)
        stepaf_ofi_close_rail(ofi, &ofi->rails[r]);
    memset(ofi->rails, 0, sizeof(ofi->rails));
    for (struct stepaf_ofi_slots *slots = ofi->slots; slots; slots = slots->next)
        slots->mem.registration[0] = NULL;
    ofi->n_rails = 0;
    ofi->is_open = false;
}

/* Take in completions while @a lasts returns true, for a limited time. */
static void take_in_while(struct stepaf_ofi *ofi, bool (*lasts)(const struct stepaf_ofi *ofi))
{
    int64_t end = stepaf_monotonic_ns() + CLOSE_MS * 1000000LL;

    while (lasts(ofi) && stepaf_monotonic_ns() < end)
        (void)stepaf_ofi_progress(&ofi->shared.base, 1);
}

static bool has_pending(const struct stepaf_ofi *ofi)
{
    return stepaf_fabric_has_pending(&ofi->shared);
}

static void ofi_close(struct stepaf_transport *transport)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;

    for (uint32_t i = 0; i < ofi->shared.n_senders; i++)
        stepaf_fabric_disconnect(ofi->shared.senders[i]); /* nothing is delivered any more */
    if (ofi->is_open)
        take_in_while(ofi, has_pending);
    if (ofi->is_open)
        stepaf_ofi_end(ofi);
    stepaf_ofi_sockets_cut(ofi);
    if (ofi->is_open)
        take_in_while(ofi, stepaf_ofi_sockets_are_open);
    stepaf_ofi_sockets_forget(ofi);
    close_rails(ofi);
    while (ofi->slots)
        stepaf_ofi_drop_slots(ofi);
    stepaf_ofi_close_room(ofi);
    stepaf_fabric_close(&ofi->shared);
    free(ofi);
}

static const uint8_t *slots_of(const struct stepaf_fabric_link *link)
{
    return (const uint8_t *)stepaf_ofi_slot((const struct stepaf_ofi_link *)link, false, 0);
}

/* Allocate this rank's own memory. */
static bool ofi_make_room(struct stepaf_ofi *ofi, unsigned n_peers)
{
    static const struct stepaf_fabric_calls calls = {.control = stepaf_ofi_control,
                                                     .slots = slots_of,
                                                     .set_aside = stepaf_ofi_set_aside,
                                                     .tell_last_rail = stepaf_ofi_tell_last_rail};

    if (!stepaf_ofi_open_room(ofi) ||
        stepaf_fabric_open(&ofi->shared, n_peers, sizeof(struct stepaf_ofi_link)) != 0 ||
        !stepaf_ofi_add_slots(ofi, 0, n_peers))
        return false;
    for (uint32_t p = 0; p < n_peers; p++)
        stepaf_ofi_link(ofi, p)->slots = ofi->slots;
    ofi->shared.calls = &calls;
    ofi->shared.timeout_us = &ofi->shared.base.up->env->ofi_peer_timeout_us;
    ofi->is_due = true;
    return true;
}

static bool ofi_is_refusal(int error)
{
    return error == FI_EBADFLAGS || error == FI_EINVAL || error == FI_ENOSYS ||
           error == FI_EOPNOTSUPP;
}

/* Take over what all rails have in common. */
static void take_rail_facts(struct stepaf_ofi *ofi)
{
    const struct fi_info *info = ofi->rails[0].info;

    ofi->shared.name = stepaf_ofi_name(info);
    ofi->shared.strerror = ofi->calls->strerror;
    ofi->shared.is_refusal = ofi_is_refusal;
    ofi->is_wide = info->domain_attr->cq_data_size >= sizeof(uint64_t);
    ofi->ends_together = stepaf_ofi_ends_together(info);
    ofi->share_min = STEPAF_OFI_SHARE_MIN;
    /* Writes that wait for a doorbell must never fill the provider's queue. */
    ofi->more_max = STEPAF_OFI_MORE_MAX - 1;
    if (info->tx_attr && info->tx_attr->size && info->tx_attr->size <= ofi->more_max)
        ofi->more_max = (unsigned)info->tx_attr->size - 1;
    if (stepaf_ofi_has_writedata_only(info))
        ofi->more_max = 0;
    ofi->piece_max = info->ep_attr->max_msg_size;
    if (ofi->piece_max > 1U << 30)
        ofi->piece_max = 1U << 30;
}

static int open_all(struct stepaf_ofi *ofi)
{
    int error = 0;

    stepaf_fd_begin();
    for (unsigned r = 0; r < ofi->n_rails && !error; r++)
        error = stepaf_ofi_open_rail(ofi, &ofi->rails[r]);
    ofi->is_open = !error;
    if (!error)
        error = stepaf_ofi_register_slots(ofi);
    (void)stepaf_fd_end(-1);
    take_rail_facts(ofi);
    return error;
}

/* Choose rails, and open them. Returns an error; or 0 without rails, and the reason says why. */
static int open_rails(struct stepaf_ofi *ofi, bool for_gpu, char *reason)
{
    const struct stepaf_upcalls *up = ofi->shared.base.up;
    struct fi_info *infos[STEPAF_OFI_RAILS];
    char refused[STEPAF_REASON_MAX];

    ofi->calls = stepaf_ofi_library(reason);
    if (ofi->calls)
        ofi->n_rails =
            stepaf_ofi_choose(ofi->calls, up->env, up->gpu, for_gpu, infos, refused, reason);
    for (unsigned r = 0; r < ofi->n_rails; r++)
        ofi->rails[r].info = infos[r];
    return ofi->n_rails ? open_all(ofi) : 0;
}

/* Open rails that accept GPU memory. Returns false if there are none; none are then open. */
static bool open_for_gpu(struct stepaf_ofi *ofi)
{
    const char *no = stepaf_ofi_no_gpu(ofi->shared.base.up);
    char reason[STEPAF_REASON_MAX] = "";

    snprintf(ofi->gpu.never, sizeof(ofi->gpu.never), "%s", no ? no : "");
    if (no)
        return false;
    int error = open_rails(ofi, true, reason);
    if (ofi->n_rails && !error && stepaf_ofi_keep_gpu(ofi))
        return true;
    if (!ofi->n_rails)
        snprintf(ofi->gpu.never, sizeof(ofi->gpu.never),
                 "this provider does not support GPU memory (FI_HMEM)");
    else if (error)
        snprintf(ofi->gpu.never, sizeof(ofi->gpu.never),
                 "this provider cannot be opened for GPU memory: %s", ofi->calls->strerror(-error));
    close_rails(ofi);
    return false;
}

static stepaf_status_t ofi_open(struct stepaf_upcalls *up, unsigned n_peers,
                                struct stepaf_transport **transport_p)
{
    char reason[STEPAF_REASON_MAX] = "";
    struct stepaf_ofi *ofi;

    if (n_peers > STEPAF_FABRIC_PEERS)
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                                "ofi: at most %d peers are supported", STEPAF_FABRIC_PEERS);
    ofi = calloc(1, sizeof(*ofi));
    if (!ofi)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    ofi->shared.base = (struct stepaf_transport){.ops = &stepaf_ofi_ops, .up = up};
    if (!ofi_make_room(ofi, n_peers)) {
        ofi_close(&ofi->shared.base);
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    }
    int error = open_for_gpu(ofi) ? 0 : open_rails(ofi, false, reason);
    if (error)
        snprintf(reason, sizeof(reason), "%.60s: cannot open: %.100s", ofi->shared.name,
                 ofi->calls->strerror(-error));
    if (!ofi->n_rails || error) {
        ofi_close(&ofi->shared.base);
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, "ofi: %s", reason);
    }
    *transport_p = &ofi->shared.base;
    return STEPAF_OK;
}

static void ofi_probe_gpu(const struct stepaf_env *env, struct stepaf_gpu *gpu, char *text)
{
    stepaf_transport_try_gpu(&stepaf_ofi_ops, env, gpu, NULL, text);
}

/* All links are proven: libfabric has made all its connections, and no peer uses former keys. */
static void ofi_shrink(struct stepaf_transport *transport)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;

    stepaf_ofi_end_former(ofi);
    if (!ofi->settled)
        stepaf_ofi_sockets_find(ofi);
    ofi->settled = true;
    stepaf_ofi_forget_replaced(ofi);
}

/* If there are links, each says its address itself. */
static void ofi_describe(const struct stepaf_transport *transport, char *text)
{
    const struct stepaf_ofi *ofi = (const struct stepaf_ofi *)transport;
    char address[STEPAF_LINK_ADDRESS] = "";
    size_t used;

    used = (size_t)snprintf(text, STEPAF_REASON_MAX, "%.40s, domain%s", ofi->shared.name,
                            ofi->n_rails > 1 ? "s" : "");
    for (unsigned r = 0; r < ofi->n_rails; r++) {
        const char *name = ofi->rails[r].info->domain_attr->name;
        used += (size_t)snprintf(text + used, STEPAF_REASON_MAX - used, "%s %.25s", r ? "," : "",
                                 name ? name : "?");
    }
    if (!ofi->settled)
        stepaf_ofi_address_text(ofi, address);
    if (address[0] && used < STEPAF_REASON_MAX)
        snprintf(text + used, STEPAF_REASON_MAX - used, ", address %s", address);
}

static unsigned ofi_count_rails(const struct stepaf_link *base,
                                struct stepaf_rail_count rails_p[STEPAF_LINK_RAILS])
{
    const struct stepaf_ofi_link *link = (const struct stepaf_ofi_link *)base;
    const struct stepaf_ofi *ofi = (const struct stepaf_ofi *)base->transport;

    for (unsigned r = 0; r < link->n_paths; r++) {
        const char *name = ofi->rails[r].info->domain_attr->name;
        rails_p[r] =
            (struct stepaf_rail_count){link->paths[r].bytes_sent, name ? name : "", !base->dead};
    }
    return link->n_paths;
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
    .caps = STEPAF_TRANSPORT_ASKED | STEPAF_TRANSPORT_GPU | STEPAF_TRANSPORT_RETURNS,
    .probe = ofi_probe,
    .open = ofi_open,
    .close = ofi_close,
    .describe = ofi_describe,
    .reg_mem = stepaf_ofi_reg_mem,
    .dereg_mem = stepaf_ofi_dereg_mem,
    .is_quiet = stepaf_fabric_is_quiet,
    .describe_gpu = stepaf_ofi_describe_gpu,
    .probe_gpu = ofi_probe_gpu,
    .pack_address = stepaf_ofi_pack_address,
    .pack_mem = stepaf_ofi_pack_mem,
    .connect = stepaf_ofi_connect,
    .disconnect = stepaf_ofi_disconnect,
    .reopen = stepaf_ofi_reopen,
    .is_over = stepaf_fabric_is_over,
    .finish_connects = stepaf_fabric_finish_connects,
    .prove_links = stepaf_fabric_prove_links,
    .shrink = ofi_shrink,
    .import_mem = stepaf_ofi_import_mem,
    .release_mem = stepaf_ofi_release_mem,
    .post = stepaf_ofi_post,
    .retire = stepaf_fabric_retire,
    .progress = stepaf_ofi_progress,
    .check_peers = stepaf_ofi_check_peers,
    .count_rails = ofi_count_rails,
    .query_memory = ofi_query_memory,
};
