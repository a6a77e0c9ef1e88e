/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory. */
#include <stdlib.h>

#include "base/time.h"
#include "transport/ucx/ucx.h"

enum { END_MS = 1000 };

static stepaf_status_t map_host(struct stepaf_ucx *ucx, const struct stepaf_mem *mem,
                                ucp_mem_h *memh_p)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = mem->base,
                                   .length = mem->bytes};
    ucs_status_t status = ucx->calls->mem_map(ucx->context, &params, memh_p);

    if (status == UCS_ERR_NO_MEMORY)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    if (status != UCS_OK)
        return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_NONE,
                                "ucx: cannot register %zu bytes: %s", mem->bytes,
                                ucx->calls->status_string(status));
    return STEPAF_OK;
}

stepaf_status_t stepaf_ucx_reg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    struct stepaf_ucx *ucx = (struct stepaf_ucx *)transport;
    struct stepaf_ucx_registration *registration = calloc(1, sizeof(*registration));
    bool is_gpu = mem->kind == STEPAF_MEM_CUDA, is_there;
    stepaf_status_t status = STEPAF_OK;

    if (!registration)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    if (is_gpu) {
        is_there = stepaf_ucx_map_gpu(ucx, mem, registration);
    } else {
        status = map_host(ucx, mem, &registration->memh);
        is_there = !status;
    }
    if (is_there) {
        registration->next = ucx->registrations;
        registration->back = &ucx->registrations;
        if (registration->next)
            registration->next->back = &registration->next;
        ucx->registrations = registration;
        mem->registration[transport->index] = registration;
    } else {
        free(registration);
    }
    return is_gpu ? stepaf_ucx_note_gpu(ucx, mem, is_there) : status;
}

void stepaf_ucx_unregister(struct stepaf_ucx *ucx, struct stepaf_ucx_registration *registration,
                           bool unmap)
{
    *registration->back = registration->next;
    if (registration->next)
        registration->next->back = registration->back;
    if (unmap && registration->gpu)
        stepaf_ucx_unmap_gpu(ucx, registration->gpu, registration->memh);
    else if (unmap)
        (void)ucx->calls->mem_unmap(ucx->context, registration->memh);
    free(registration);
}

static bool has_ending(const struct stepaf_ucx *ucx)
{
    bool has = false;

    for (uint32_t p = 0; p < ucx->shared.n_peers && !has; p++)
        has = stepaf_ucx_is_ending(&ucx->links[p]) && !ucx->links[p].ep;
    return has;
}

/* Return whether UCX may still use a registration: requests of lost peers, and requests that move GPU
 * memory, hold its handle. */
static bool is_held(const struct stepaf_ucx *ucx,
                    const struct stepaf_ucx_registration *registration)
{
    return has_ending(ucx) || (registration->gpu && stepaf_ucx_moves_gpu(ucx));
}

/* Close the endpoints of lost peers, and wait until UCX has released the registration. The next
 * progress delivers what arrives meanwhile. */
static void await_end(struct stepaf_ucx *ucx, const struct stepaf_ucx_registration *registration)
{
    int64_t end = stepaf_monotonic_ns() + END_MS * 1000000LL;

    stepaf_ucx_end_lost(ucx);
    while (is_held(ucx, registration) && !ucx->gpu.is_gone && stepaf_monotonic_ns() < end)
        (void)stepaf_ucx_turn(ucx);
}

/* If UCX still holds the handle, the registration stays until the transport is closed. */
void stepaf_ucx_dereg_mem(struct stepaf_transport *transport, struct stepaf_mem *mem)
{
    struct stepaf_ucx *ucx = (struct stepaf_ucx *)transport;
    struct stepaf_ucx_registration *registration = mem->registration[transport->index];

    mem->registration[transport->index] = NULL;
    if (!registration)
        return;
    await_end(ucx, registration);
    if (!is_held(ucx, registration))
        stepaf_ucx_unregister(ucx, registration, true);
}

/* Active messages need no keys: the advert has only the kind of the memory. */
void stepaf_ucx_pack_mem(struct stepaf_transport *transport, const struct stepaf_mem *mem,
                         struct stepaf_pack *pack)
{
    (void)transport;
    stepaf_pack_u32(pack, (uint32_t)mem->kind);
}

stepaf_status_t stepaf_ucx_import_mem(struct stepaf_link *base, uint32_t id, uint64_t bytes,
                                      struct stepaf_unpack *unpack, struct stepaf_rmem **rmem_p)
{
    struct stepaf_ucx_link *link = (struct stepaf_ucx_link *)base;
    uint32_t kind = stepaf_unpack_u32(unpack);

    if (kind != STEPAF_MEM_HOST && kind != STEPAF_MEM_CUDA)
        return stepaf_error_set(STEPAF_ERR_PROTOCOL, STEPAF_PHASE_COMMIT,
                                "ucx: its memory type %u is unknown", kind);
    struct stepaf_ucx_rmem *rmem = calloc(1, sizeof(*rmem));
    if (!rmem)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    rmem->base = (struct stepaf_rmem){id, bytes};
    rmem->is_gpu = kind == STEPAF_MEM_CUDA;
    link->has_gpu = link->has_gpu || rmem->is_gpu;
    *rmem_p = &rmem->base;
    return STEPAF_OK;
}

void stepaf_ucx_release_mem(struct stepaf_link *base, struct stepaf_rmem *rmem)
{
    (void)base;
    free(rmem);
}
