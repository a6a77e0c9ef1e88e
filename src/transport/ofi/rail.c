/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing of a rail: all that libfabric opens of a domain, except memory. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transport/ofi/ofi.h"

enum {
    EVENTS = 16,                    /* read at a time */
    CQ_ENTRIES = 4096,              /* at least */
    WRITES = STEPAF_MAX_TENSORS + 1 /* of a message, over one rail: its tensors, and itself */
};

bool stepaf_ofi_has_writedata_only(const struct fi_info *info)
{
    return !strcmp(info->fabric_attr->prov_name, "cxi");
}

/* fi_writedata has no flags: all writes complete, as the queue is bound, and ring. */
static ssize_t write_with_data(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    (void)flags;
    return fi_writedata(ep, msg->msg_iov->iov_base, msg->msg_iov->iov_len, *msg->desc, msg->data,
                        msg->addr, msg->rma_iov->addr, msg->rma_iov->key, msg->context);
}

static const struct fi_ops_rma by_writedata = {.size = sizeof(by_writedata),
                                               .writemsg = write_with_data};

static void close_fid(struct fid *fid)
{
    if (fid)
        (void)fi_close(fid);
}

void stepaf_ofi_close_endpoint(struct stepaf_ofi_rail *rail)
{
    close_fid(rail->ep ? &rail->ep->fid : NULL);
    rail->ep = NULL;
}

void stepaf_ofi_close_rail(const struct stepaf_ofi *ofi, struct stepaf_ofi_rail *rail)
{
    close_fid(rail->eq ? &rail->eq->fid : NULL);
    close_fid(rail->cq ? &rail->cq->fid : NULL);
    close_fid(rail->av ? &rail->av->fid : NULL);
    close_fid(rail->domain ? &rail->domain->fid : NULL);
    close_fid(rail->fabric ? &rail->fabric->fid : NULL);
    if (rail->info)
        ofi->calls->freeinfo(rail->info);
}

static bool is_efa(const struct stepaf_ofi_rail *rail)
{
    return !strcmp(rail->info->fabric_attr->prov_name, "efa");
}

/* Return how many completions the queue must hold. EFA's device does not wait where a queue is full,
 * so what all peers may have written there must fit, besides this rank's own writes. */
static size_t entries_needed(const struct stepaf_ofi *ofi, const struct stepaf_ofi_rail *rail)
{
    const size_t most = (size_t)ofi->shared.n_peers * STEPAF_FABRIC_RING * WRITES + STEPAF_OFI_OPS +
                        STEPAF_OFI_RESERVE;

    return most > CQ_ENTRIES && is_efa(rail) ? most : CQ_ENTRIES;
}

/* Open the completion queue, smaller than needed if the device has no larger one. */
static int open_queue(const struct stepaf_ofi *ofi, struct stepaf_ofi_rail *rail)
{
    const size_t needed = entries_needed(ofi, rail);
    size_t entries = needed;

    for (;;) {
        struct fi_cq_attr attr = {.size = entries, .format = FI_CQ_FORMAT_DATA};
        int error = fi_cq_open(rail->domain, &attr, &rail->cq, NULL);
        if (!error && entries < needed)
            stepaf_log_info("ofi: %s: the completion queue has %zu entries, of %zu that %u peers "
                            "may fill",
                            rail->info->fabric_attr->prov_name, entries, needed,
                            ofi->shared.n_peers);
        if (!error || entries == CQ_ENTRIES)
            return error;
        entries = entries / 2 > CQ_ENTRIES ? entries / 2 : CQ_ENTRIES;
    }
}

/* Bind a queue of events to the endpoint: without one, efa ends the process by an error that belongs
 * to no operation, such as a peer's write to memory that is no longer registered. */
static int bind_events(struct stepaf_ofi_rail *rail)
{
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_NONE};

    if (!is_efa(rail))
        return 0;
    int error = fi_eq_open(rail->fabric, &attr, &rail->eq, NULL);
    return error ? error : fi_ep_bind(rail->ep, &rail->eq->fid, 0);
}

static void read_rail_events(struct stepaf_ofi *ofi, const struct stepaf_ofi_rail *rail)
{
    for (unsigned i = 0; i < EVENTS; i++) {
        struct fi_eq_err_entry entry = {.err = 0};
        uint32_t event;
        ssize_t bytes = fi_eq_read(rail->eq, &event, &entry, sizeof(entry), 0);
        if (bytes == -FI_EAVAIL)
            bytes = fi_eq_readerr(rail->eq, &entry, 0);
        if (bytes < 0)
            return;
        ofi->shared.base.up->dropped_malformed += entry.err != 0;
        if (entry.err && !i) /* the first: there may be many */
            stepaf_log_warn("ofi: %s: an error that belongs to no operation: %s (%d)",
                            ofi->shared.name, ofi->calls->strerror(abs(entry.err)),
                            entry.prov_errno);
    }
}

void stepaf_ofi_read_events(struct stepaf_ofi *ofi)
{
    for (unsigned r = 0; r < ofi->n_rails; r++)
        if (ofi->rails[r].eq)
            read_rail_events(ofi, &ofi->rails[r]);
}

int stepaf_ofi_open_rail(const struct stepaf_ofi *ofi, struct stepaf_ofi_rail *rail)
{
    struct fi_av_attr av_attr = {.type = FI_AV_UNSPEC};
    int error = ofi->calls->fabric(rail->info->fabric_attr, &rail->fabric, NULL);

    if (!error)
        error = fi_domain(rail->fabric, rail->info, &rail->domain, NULL);
    if (!error)
        error = fi_av_open(rail->domain, &av_attr, &rail->av, NULL);
    if (!error)
        error = open_queue(ofi, rail);
    if (!error)
        error = fi_endpoint(rail->domain, rail->info, &rail->ep, NULL);
    if (!error)
        error = fi_ep_bind(rail->ep, &rail->av->fid, 0);
    if (!error)
        error = fi_ep_bind(rail->ep, &rail->cq->fid, FI_TRANSMIT | FI_RECV);
    if (!error)
        error = bind_events(rail);
    if (!error)
        stepaf_ofi_prepare_gpu(rail);
    if (!error)
        error = fi_enable(rail->ep); /* a provider may set its functions here */
    if (!error)
        rail->rma = stepaf_ofi_has_writedata_only(rail->info) ? &by_writedata : rail->ep->rma;
    rail->address_bytes = sizeof(rail->address);
    return error ? error : fi_getname(&rail->ep->fid, rail->address, &rail->address_bytes);
}
