/* SPDX-License-Identifier: Apache-2.0 */
/* Links for the processes that take lost peers' places. A lost peer may live, and still write where
 * it was told to. A connection of its own could be closed, but an endpoint serves all peers. So its
 * successor gets what the lost peer does not know: a sender number, slots, and other keys of all
 * memory. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/time.h"
#include "transport/ofi/ofi.h"

enum {
    PAGE = 4096,
    PENDING_MS = 200,
    MORE = 15 /* slots of so many links fill pages */
};

struct stepaf_ofi_slots *stepaf_ofi_add_slots(struct stepaf_ofi *ofi, uint32_t first, uint32_t n)
{
    size_t bytes = (size_t)2 * n * STEPAF_OFI_PLACES * STEPAF_FABRIC_SLOT;
    struct stepaf_ofi_slots *slots = malloc(sizeof(*slots));
    void *base;

    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    base = aligned_alloc(PAGE, bytes);
    if (!slots || !base) {
        free(slots);
        free(base);
        return NULL;
    }
    memset(base, 0, bytes);
    *slots = (struct stepaf_ofi_slots){.next = ofi->slots,
                                       .first = first,
                                       .n = n,
                                       .mem = {.base = base, .bytes = bytes, .fd = -1}};
    ofi->slots = slots;
    return slots;
}

/* Peers read the slots' keys only once, when they connect. */
int stepaf_ofi_register_slots(struct stepaf_ofi *ofi)
{
    struct stepaf_mem *mem = &ofi->slots->mem;
    struct stepaf_ofi_registration *registration;
    int error;

    mem->registration[0] = registration = stepaf_ofi_register(ofi, mem, &error);
    if (registration)
        registration->is_fixed = true;
    return error;
}

void stepaf_ofi_drop_slots(struct stepaf_ofi *ofi)
{
    struct stepaf_ofi_slots *slots = ofi->slots;

    ofi->slots = slots->next;
    free(slots->mem.base);
    free(slots);
}

static stepaf_status_t cannot(const char *what)
{
    return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_COMMIT, "ofi: %s", what);
}

/* Count the links that need a successor. *live_p: the process of one may still write. A link that
 * was disconnected, and not lost, has never carried a write. */
static uint32_t count_spent(const struct stepaf_ofi *ofi, bool *live_p)
{
    uint32_t n = 0;

    *live_p = false;
    for (uint32_t p = 0; p < ofi->shared.n_peers; p++) {
        const struct stepaf_fabric_link *link = ofi->shared.links[p];
        if (!stepaf_fabric_is_spent(link))
            continue;
        n++;
        *live_p = *live_p || (link->base.dead && !stepaf_fabric_has_ended(link));
    }
    return n;
}

/* Return whether writes of tensors to live peers, or to others, are in flight. */
static bool has_writes(const struct stepaf_ofi *ofi, bool to_live)
{
    for (uint32_t i = 0; i < ofi->shared.n_senders; i++) {
        const struct stepaf_fabric_link *link = ofi->shared.senders[i];
        if ((link->used && !link->base.dead) == to_live && stepaf_fabric_link_has_pending(link))
            return true;
    }
    return false;
}

/* Wait for writes that name registrations which are to end. To live peers all have arrived, since
 * all ranks are quiet. Those to lost peers may never end, but matter only where a device reads the
 * source: then another commit may find that they have. */
static bool complete_writes(struct stepaf_ofi *ofi)
{
    const struct timespec pause = {.tv_nsec = 100000};
    int64_t end_ns = stepaf_monotonic_ns() + PENDING_MS * INT64_C(1000000);

    ofi->shared.calls->set_aside(&ofi->shared);
    while (has_writes(ofi, true) && stepaf_monotonic_ns() < end_ns) {
        (void)nanosleep(&pause, NULL);
        ofi->shared.calls->set_aside(&ofi->shared);
    }
    return !has_writes(ofi, true) &&
           (!(ofi->rails[0].info->domain_attr->mr_mode & FI_MR_LOCAL) || !has_writes(ofi, false));
}

/* Have slots for the next sender number. Several numbers share memory, which is whole pages. */
static stepaf_status_t have_slots(struct stepaf_ofi *ofi)
{
    if (ofi->shared.n_senders < ofi->slots->first + ofi->slots->n)
        return STEPAF_OK;
    if (!stepaf_ofi_add_slots(ofi, ofi->shared.n_senders, MORE))
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    int error = stepaf_ofi_register_slots(ofi);
    if (!error)
        return STEPAF_OK;
    stepaf_ofi_drop_slots(ofi);
    return cannot(ofi->calls->strerror(-error));
}

/* Replace the spent links. After a failure some peers have no successor: their places stay empty. */
static stepaf_status_t replace_spent(struct stepaf_ofi *ofi)
{
    for (uint32_t p = 0; p < ofi->shared.n_peers; p++) {
        if (!stepaf_fabric_is_spent(ofi->shared.links[p]))
            continue;
        stepaf_status_t status = have_slots(ofi);
        if (status)
            return status;
        struct stepaf_fabric_link *link = stepaf_fabric_replace(&ofi->shared, p);
        if (!link)
            return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
        ((struct stepaf_ofi_link *)link)->slots = ofi->slots;
    }
    return STEPAF_OK;
}

/* Nothing is sent to the peer any more: have the provider release what it keeps of it, such as
 * shared memory. */
static void forget_peer(struct stepaf_ofi *ofi, struct stepaf_ofi_link *link)
{
    for (unsigned r = 0; r < link->n_paths; r++)
        (void)fi_av_remove(ofi->rails[r].av, &link->paths[r].to, 1, 0);
    link->n_paths = 0;
    link->shared.proof.state = STEPAF_FABRIC_UNPROVEN;
}

void stepaf_ofi_forget_replaced(struct stepaf_ofi *ofi)
{
    for (uint32_t i = 0; i < ofi->shared.n_senders; i++) {
        struct stepaf_fabric_link *link = ofi->shared.senders[i];
        if (link != ofi->shared.links[link->base.peer] && !link->used && !link->control.pending &&
            !stepaf_fabric_link_has_pending(link))
            forget_peer(ofi, (struct stepaf_ofi_link *)link);
    }
}

/* Give all memory other keys. @a live: a process that knows the former ones may still write. */
static stepaf_status_t change_keys(struct stepaf_ofi *ofi, bool live)
{
    bool same;

    if (live && stepaf_ofi_has_writedata_only(ofi->rails[0].info) &&
        !stepaf_ofi_is_on("FI_CXI_MR_MATCH_EVENTS"))
        return cannot("a key of provider cxi ends only with FI_CXI_MR_MATCH_EVENTS=1");
    int error = stepaf_ofi_register_anew(ofi, &same);
    if (error)
        return cannot(ofi->calls->strerror(-error));
    return live && same ? cannot("the provider gives memory the same key again "
                                 "(FI_MR_CACHE_MONITOR=disabled)")
                        : STEPAF_OK;
}

stepaf_status_t stepaf_ofi_reopen(struct stepaf_transport *transport)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)transport;
    bool live;

    if (ofi->ends_together)
        return cannot("ranks cannot return over verbs;ofi_rxm (use transport verbs)");
    if (!count_spent(ofi, &live))
        return STEPAF_OK;
    if (!complete_writes(ofi))
        return cannot("writes do not complete");
    if (count_spent(ofi, &live) > STEPAF_FABRIC_PEERS - ofi->shared.n_senders)
        return cannot("too many processes have been replaced");
    stepaf_status_t status = change_keys(ofi, live);
    return status ? status : replace_spent(ofi);
}
