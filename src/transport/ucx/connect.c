/* SPDX-License-Identifier: Apache-2.0 */
/* Exchange addresses, and connect and disconnect links. */
#include <poll.h>
#include <string.h>

#include "transport/ucx/ucx.h"

void stepaf_ucx_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack)
{
    struct stepaf_ucx *ucx = (struct stepaf_ucx *)transport;

    stepaf_pack_text(pack, ucx->version);
    stepaf_pack_u64(pack, ucx->shared.token);
    stepaf_pack_u64(pack, ucx->shared.pids);
    stepaf_pack_u32(pack, (uint32_t)ucx->address_bytes);
    stepaf_pack_bytes(pack, ucx->address, ucx->address_bytes);
}

/* The error callback of an endpoint, within UCX's progress: the endpoint must be closed, but not in
 * this callback. */
static void ucx_has_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct stepaf_ucx_link *link = arg;

    if (ep != link->ep)
        return;
    link->failed = status;
    stepaf_ucx_note(link);
}

static ucs_status_t make_endpoint(struct stepaf_ucx_link *link, const void *address)
{
    struct stepaf_ucx *ucx = stepaf_ucx_of(link);
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = address,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = ucx_has_failed, .arg = link}};

    ucs_status_t status = ucx->calls->ep_create(ucx->worker, &params, &link->ep);
    /* Over shared memory, older UCX cannot report the end of a peer. If the peer's process is
     * watched, that report is not needed. */
    if (status == UCS_ERR_UNREACHABLE && link->shared.pidfd >= 0) {
        params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
        status = ucx->calls->ep_create(ucx->worker, &params, &link->ep);
    }
    link->can_force = params.err_mode == UCP_ERR_HANDLING_MODE_PEER;
    return status;
}

stepaf_status_t stepaf_ucx_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason)
{
    struct stepaf_ucx *ucx = (struct stepaf_ucx *)transport;
    struct stepaf_ucx_link *link = &ucx->links[facts->peer];
    char version[STEPAF_UCX_TEXT];
    /* UCX is not told the length of an address: zeros follow a short one. */
    uint64_t copy[2 * STEPAF_UCX_ADDRESS / sizeof(uint64_t)] = {0};

    *link_p = NULL;
    stepaf_unpack_text(unpack, version, sizeof(version));
    uint64_t token = stepaf_unpack_u64(unpack), pids = stepaf_unpack_u64(unpack);
    uint32_t bytes = stepaf_unpack_u32(unpack);
    const void *address = stepaf_unpack_bytes(unpack, bytes);
    if (unpack->failed || !bytes || bytes > STEPAF_UCX_ADDRESS ||
        facts->index_at_peer >= STEPAF_FABRIC_PEERS) {
        snprintf(reason, STEPAF_REASON_MAX, "its address is malformed");
        return STEPAF_OK;
    }
    if (strcmp(version, ucx->version) != 0) {
        snprintf(reason, STEPAF_REASON_MAX, "its %.40s is not this rank's %.40s", version,
                 ucx->version);
        return STEPAF_OK;
    }
    memcpy(copy, address, bytes);
    stepaf_fabric_connect(&link->shared, facts, token, pids);
    link->shared.sender_at_peer = facts->index_at_peer;
    ucs_status_t status = make_endpoint(link, copy);
    if (status != UCS_OK) {
        link->ep = NULL;
        stepaf_fabric_disconnect(&link->shared);
        snprintf(reason, STEPAF_REASON_MAX, "UCX: %.100s", ucx->calls->status_string(status));
        return STEPAF_OK;
    }
    snprintf(link->shared.base.name, sizeof(link->shared.base.name), "ucx");
    *link_p = &link->shared.base;
    return STEPAF_OK;
}

static void has_closed(void *request, ucs_status_t status, void *user_data)
{
    struct stepaf_ucx *ucx = user_data;

    (void)status;
    ucx->calls->request_free(request);
    ucx->n_ending--;
}

static void has_closed_by_force(void *request, ucs_status_t status, void *user_data)
{
    struct stepaf_ucx_link *link = user_data;

    link->n_closing--;
    has_closed(request, status, stepaf_ucx_of(link));
}

static bool is_sound(const struct stepaf_ucx_link *link)
{
    return link->shared.proof.state == STEPAF_FABRIC_PROVEN && !link->shared.base.dead;
}

void stepaf_ucx_flush(struct stepaf_ucx_link *link)
{
    struct stepaf_ucx *ucx = stepaf_ucx_of(link);
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = has_closed,
                                       .user_data = ucx};

    if (link->ep && is_sound(link))
        ucx->n_ending += UCS_PTR_IS_PTR(ucx->calls->ep_flush_nbx(link->ep, &param));
}

/* If the peer is gone and the endpoint cannot be closed by force, the endpoint stays until the
 * worker ends. UCX 1.13 ends the process when an endpoint is closed by force while it is connecting,
 * at least over RDMA. So a link that is not proven is closed without force; if that close does not
 * complete, the worker is left as it is. */
void stepaf_ucx_disconnect(struct stepaf_link *base)
{
    struct stepaf_ucx_link *link = (struct stepaf_ucx_link *)base;
    struct stepaf_ucx *ucx = stepaf_ucx_of(link);
    bool is_forced = link->can_force && link->shared.proof.state != STEPAF_FABRIC_UNPROVEN;
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                       UCP_OP_ATTR_FIELD_USER_DATA |
                                                       (is_forced ? UCP_OP_ATTR_FIELD_FLAGS : 0),
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE,
                                       .cb.send = is_forced ? has_closed_by_force : has_closed,
                                       .user_data = is_forced ? (void *)link : ucx};

    stepaf_fabric_disconnect(&link->shared);
    if (!link->ep)
        return;
    link->is_left = !link->can_force && !is_sound(link);
    bool takes_time = !link->is_left && UCS_PTR_IS_PTR(ucx->calls->ep_close_nbx(link->ep, &param));
    ucx->n_ending += takes_time;
    link->n_closing += takes_time && is_forced;
    link->ep = NULL;
}

/* Return whether a lost link can be closed now: by force or, if that is not possible, since the
 * peer's process has ended. Until then, the peer continues what it has begun. */
static bool can_end(const struct stepaf_ucx_link *link)
{
    struct pollfd pollfd = {.fd = link->shared.pidfd, .events = POLLIN};

    return link->can_force || poll(&pollfd, 1, 0) > 0;
}

void stepaf_ucx_end_lost(struct stepaf_ucx *ucx)
{
    for (uint32_t p = 0; p < ucx->shared.n_peers; p++)
        if (ucx->links[p].shared.base.dead && ucx->links[p].ep && can_end(&ucx->links[p]))
            stepaf_ucx_disconnect(&ucx->links[p].shared.base);
}

bool stepaf_ucx_is_ending(const struct stepaf_ucx_link *link)
{
    return (link->shared.base.dead || !link->ep) && !link->is_left &&
           (link->n_closing || link->n_fetches || stepaf_fabric_link_has_pending(&link->shared));
}
