/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that devices may read and write: the control memory with rings and acknowledged counts,
 * and the announcements of regions. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/round.h"
#include "transport/verbs/verbs.h"

enum { PAGE = 4096 };

void stepaf_verbs_hint_at_limit(int error, char hint[STEPAF_VERBS_HINT])
{
    struct rlimit limit;

    hint[0] = '\0';
    if ((error == ENOMEM || error == EAGAIN) && !getrlimit(RLIMIT_MEMLOCK, &limit) &&
        limit.rlim_cur != RLIM_INFINITY)
        snprintf(hint, STEPAF_VERBS_HINT,
                 ": at most %llu KiB may be locked: raise this limit (ulimit -l unlimited)",
                 (unsigned long long)limit.rlim_cur / 1024);
}

stepaf_status_t stepaf_verbs_refuse(stepaf_status_t status, const struct stepaf_verbs_rail *rail,
                                    size_t bytes, int error)
{
    char hint[STEPAF_VERBS_HINT];

    stepaf_verbs_hint_at_limit(error, hint);
    return stepaf_error_set(status, STEPAF_PHASE_NONE, "verbs: %s cannot register %zu bytes: %s%s",
                            rail->name, bytes, strerror(error), hint);
}

static bool needs_send_ring(const struct stepaf_verbs *verbs)
{
    for (unsigned r = 0; r < verbs->n_rails; r++)
        if (verbs->rails[r].max.inline_bytes < sizeof(struct stepaf_verbs_slot))
            return true;
    return false;
}

static void lay_out_control(struct stepaf_verbs *verbs)
{
    uint32_t acks = (uint32_t)stepaf_round_up(verbs->n_paths * 8, STEPAF_VERBS_LINE);
    uint32_t ring =
        verbs->n_rails * verbs->qp.receives * (uint32_t)sizeof(struct stepaf_verbs_slot);

    verbs->control.layout = (struct stepaf_verbs_layout){
        .acks_in = 0, .acks_out = acks, .ring = 2 * acks, .send_ring = 2 * acks + ring};
    verbs->control.layout.stride = 2 * acks + ring * (needs_send_ring(verbs) ? 2 : 1);
}

stepaf_status_t stepaf_verbs_control_make(struct stepaf_verbs *verbs)
{
    lay_out_control(verbs);
    verbs->control.bytes = (size_t)verbs->control.layout.stride * verbs->n_peers;
    verbs->control.bytes = (verbs->control.bytes + PAGE - 1) / PAGE * PAGE;
    verbs->control.base = mmap(NULL, verbs->control.bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (verbs->control.base == MAP_FAILED) {
        verbs->control.base = NULL;
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    }
    for (unsigned r = 0; r < verbs->n_rails; r++) {
        struct stepaf_verbs_rail *rail = &verbs->rails[r];
        rail->control_mr = verbs->provider->reg_mr(rail->pd, verbs->control.base,
                                                   verbs->control.bytes, STEPAF_VERBS_ACCESS);
        if (!rail->control_mr)
            return stepaf_verbs_refuse(STEPAF_ERR_NO_TRANSPORT, rail, verbs->control.bytes, errno);
    }
    return STEPAF_OK;
}

void stepaf_verbs_control_free(struct stepaf_verbs *verbs)
{
    for (unsigned r = 0; r < verbs->n_rails; r++)
        if (verbs->rails[r].control_mr)
            verbs->provider->dereg_mr(verbs->rails[r].control_mr);
    if (verbs->control.base)
        munmap(verbs->control.base, verbs->control.bytes);
}

void stepaf_verbs_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                           struct stepaf_pack *pack)
{
    const struct stepaf_verbs *verbs = (const struct stepaf_verbs *)transport;
    const struct stepaf_verbs_memory *memory = mem->registration[STEPAF_TRANSPORT_verbs];

    stepaf_pack_u64(pack, (uintptr_t)mem->base);
    for (unsigned r = 0; r < verbs->n_rails; r++)
        stepaf_pack_u32(pack, memory->mr[r]->rkey);
}

stepaf_status_t stepaf_verbs_import_mem(struct stepaf_link *base, uint32_t id, uint64_t bytes,
                                        struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p)
{
    const struct stepaf_verbs_link *link = (const struct stepaf_verbs_link *)base;
    unsigned n_rails = link->n_paths / stepaf_verbs_of(link)->n_qps;
    struct stepaf_verbs_rmem *rmem = calloc(1, sizeof(*rmem));

    if (!rmem)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    rmem->base = (struct stepaf_rmem){id, bytes};
    rmem->address = stepaf_unpack_u64(unpack);
    for (unsigned r = 0; r < n_rails; r++)
        rmem->key[r] = stepaf_unpack_u32(unpack);
    if (unpack->failed || rmem->address + bytes < rmem->address) {
        free(rmem);
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "verbs: a region's announcement is malformed");
    }
    *rmem_p = &rmem->base;
    return STEPAF_OK;
}

void stepaf_verbs_release_mem(struct stepaf_link *link, struct stepaf_rmem *rmem)
{
    (void)link;
    free(rmem);
}
