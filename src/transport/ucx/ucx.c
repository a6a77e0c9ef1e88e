/* SPDX-License-Identifier: Apache-2.0 */
/* Open and close the transport; its table. */
#include "transport/ucx/ucx.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "transport/try_gpu.h"

static void name_version(const struct stepaf_ucx_library *library, char *text, size_t room)
{
    unsigned major = 0, minor = 0, release = 0;

    library->get_version(&major, &minor, &release);
    snprintf(text, room, "UCX %u.%u.%u", major, minor, release);
}

static bool ucx_probe(const struct stepaf_env *env, char *reason)
{
    (void)env;
    return stepaf_ucx_library(reason) != NULL;
}

/* End the time in which the file descriptors that UCX opens are kept from the numbers 0 to 2: all
 * links are proven, or there will be none. That time is not limited to calls of UCX, since a thread
 * of UCX accepts connections. */
static void end_connects(struct stepaf_ucx *ucx)
{
    if (ucx->connects)
        (void)stepaf_fd_end(-1);
    ucx->connects = false;
}

static void destroy_worker(void *arg)
{
    const struct stepaf_ucx *ucx = arg;

    ucx->calls->worker_destroy(ucx->worker);
}

/* The worker destroys its CUDA streams, which requires the GPU's context. */
static void end_worker(struct stepaf_ucx *ucx)
{
    if (!ucx->gpu.device || stepaf_gpu_inside(ucx->gpu.device, destroy_worker, ucx))
        destroy_worker(ucx);
}

/* To destroy a worker while something is in flight would end the process. Such a worker is left as
 * it is, with the memory that it may be moving. */
static void ucx_close(struct stepaf_transport *transport)
{
    struct stepaf_ucx *ucx = (struct stepaf_ucx *)transport;
    bool can_end = !ucx->worker || !ucx->links || stepaf_ucx_close_links(ucx);

    while (ucx->registrations)
        stepaf_ucx_unregister(ucx, ucx->registrations, can_end || !stepaf_ucx_moves_gpu(ucx));
    if (ucx->address)
        ucx->calls->worker_release_address(ucx->worker, ucx->address);
    if (ucx->worker && can_end)
        end_worker(ucx);
    if (ucx->context && can_end)
        ucx->calls->cleanup(ucx->context);
    end_connects(ucx);
    free(ucx->ops);
    free(ucx->copies);
    stepaf_fabric_close(&ucx->shared);
    free(ucx);
}

static ucs_status_t set_handler(struct stepaf_ucx *ucx, unsigned id, ucp_am_recv_callback_t take)
{
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = id,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = take,
        .arg = ucx};

    return ucx->calls->worker_set_am_recv_handler(ucx->worker, &handler);
}

/* @a header_max_p: how many bytes a header of an active message may have. */
static ucs_status_t open_worker(struct stepaf_ucx *ucx, uint32_t n_peers, size_t *header_max_p)
{
    const ucp_params_t params = {.field_mask =
                                     UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                 .features = UCP_FEATURE_AM,
                                 .estimated_num_eps = n_peers};
    /* The library ensures that only one thread at a time calls UCX. */
    const ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                               .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS |
                                            UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    ucs_status_t status = ucx->calls->init_version(1, 13, &params, NULL, &ucx->context);

    if (status == UCS_OK)
        status = ucx->calls->worker_create(ucx->context, &worker_params, &ucx->worker);
    if (status == UCS_OK)
        status = set_handler(ucx, STEPAF_UCX_MESSAGE, stepaf_ucx_take);
    if (status == UCS_OK)
        status = set_handler(ucx, STEPAF_UCX_QUICK, stepaf_ucx_take_quick);
    if (status == UCS_OK)
        status = ucx->calls->worker_query(ucx->worker, &attr);
    if (status != UCS_OK)
        return status;
    ucx->address = attr.address;
    ucx->address_bytes = attr.address_length;
    *header_max_p = attr.max_am_header;
    return UCS_OK;
}

/* Copy into messages as much as headers of @a header_max bytes allow: UCX's limit is that of the
 * device that takes least. Returns false if the transport cannot work; @a reason says why. */
static bool fit_headers(struct stepaf_ucx *ucx, size_t header_max, char *reason)
{
    const size_t heads = STEPAF_UCX_HEAD_MAX - STEPAF_UCX_STAGE;

    if (header_max < STEPAF_UCX_HEAD_USUAL)
        snprintf(reason, STEPAF_REASON_MAX,
                 "headers of active messages have at most %zu bytes, and need %d: leave out the "
                 "device with the smallest MTU (UCX_NET_DEVICES)",
                 header_max, STEPAF_UCX_HEAD_USUAL);
    else if (ucx->address_bytes > STEPAF_UCX_ADDRESS)
        snprintf(reason, STEPAF_REASON_MAX,
                 "the address has %zu bytes, more than %d: use fewer devices (UCX_NET_DEVICES)",
                 ucx->address_bytes, STEPAF_UCX_ADDRESS);
    else if (header_max >= STEPAF_UCX_HEAD_MAX)
        ucx->stage = STEPAF_UCX_STAGE;
    else
        ucx->stage = (uint32_t)(header_max > heads ? header_max - heads : 0);
    return !reason[0];
}

static const uint8_t *ucx_slots_of(const struct stepaf_fabric_link *link)
{
    return (const uint8_t *)((const struct stepaf_ucx_link *)link)->slots;
}

static const char *string_of(int error)
{
    const struct stepaf_ucx_library *library = stepaf_ucx_library((char[STEPAF_REASON_MAX]){""});

    return library->status_string((ucs_status_t)error);
}

static bool ucx_is_refusal(int error)
{
    return error == UCS_ERR_UNSUPPORTED || error == UCS_ERR_NOT_IMPLEMENTED ||
           error == UCS_ERR_INVALID_PARAM;
}

/* Allocate what needs no call of UCX. */
static bool ucx_make_room(struct stepaf_ucx *ucx, uint32_t n_peers)
{
    static const struct stepaf_fabric_calls calls = {.control = stepaf_ucx_control,
                                                     .slots = ucx_slots_of,
                                                     .set_aside = stepaf_ucx_set_aside,
                                                     .proven = stepaf_ucx_look_at};

    ucx->ops = calloc(STEPAF_UCX_OPS + STEPAF_UCX_RESERVE, sizeof(*ucx->ops));
    ucx->copies = aligned_alloc(STEPAF_FABRIC_LINE, STEPAF_UCX_COPIES * sizeof(*ucx->copies));
    if (!ucx->ops || !ucx->copies ||
        stepaf_fabric_open(&ucx->shared, n_peers, sizeof(*ucx->links)) != 0)
        return false;
    ucx->links = ucx->shared.first;
    ucx->shared.calls = &calls;
    ucx->shared.name = "UCX";
    ucx->shared.strerror = string_of;
    ucx->shared.is_refusal = ucx_is_refusal;
    ucx->shared.timeout_us = &ucx->shared.base.up->env->ucx_peer_timeout_us;
    for (uint32_t p = 0; p < n_peers; p++)
        for (uint32_t i = 0; i < STEPAF_FABRIC_RING; i++) {
            ucx->links[p].out[i].op.flight = &ucx->links[p].shared.flight[i];
            ucx->links[p].in[i] = (struct stepaf_ucx_in){&ucx->links[p], i};
        }
    for (int i = 0; i < STEPAF_UCX_OPS + STEPAF_UCX_RESERVE; i++) {
        struct stepaf_ucx_op **pool = i < STEPAF_UCX_OPS ? &ucx->free_op : &ucx->free_reserve;
        ucx->ops[i].pool = pool;
        ucx->ops[i].next = *pool;
        *pool = &ucx->ops[i];
    }
    for (int i = 0; i < STEPAF_UCX_COPIES; i++) {
        ucx->copies[i].next = ucx->free_copy;
        ucx->free_copy = &ucx->copies[i];
    }
    return true;
}

static stepaf_status_t ucx_open(struct stepaf_upcalls *up, unsigned n_peers,
                                struct stepaf_transport **transport_p)
{
    char reason[STEPAF_REASON_MAX] = "";
    const struct stepaf_ucx_library *library = stepaf_ucx_library(reason);

    if (n_peers > STEPAF_FABRIC_PEERS)
        snprintf(reason, sizeof(reason), "no more than %d peers", STEPAF_FABRIC_PEERS);
    if (reason[0])
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, "ucx: %s", reason);
    struct stepaf_ucx *ucx = calloc(1, sizeof(*ucx));
    if (!ucx)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    ucx->shared.base = (struct stepaf_transport){.ops = &stepaf_ucx_ops, .up = up};
    ucx->calls = library;
    name_version(library, ucx->version, sizeof(ucx->version));
    if (!ucx_make_room(ucx, n_peers)) {
        ucx_close(&ucx->shared.base);
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    }
    stepaf_fd_begin();
    ucx->connects = true;
    size_t header_max = 0;
    ucs_status_t status = open_worker(ucx, n_peers, &header_max);
    if (status != UCS_OK)
        snprintf(reason, sizeof(reason), "cannot open: %.100s", library->status_string(status));
    if (status != UCS_OK || !fit_headers(ucx, header_max, reason)) {
        ucx_close(&ucx->shared.base);
        return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT, "ucx: %s", reason);
    }
    stepaf_ucx_open_gpu(ucx);
    *transport_p = &ucx->shared.base;
    return STEPAF_OK;
}

static void ucx_probe_gpu(const struct stepaf_env *env, struct stepaf_gpu *gpu, char *text)
{
    stepaf_transport_try_gpu(&stepaf_ucx_ops, env, gpu, NULL, text);
}

static void ucx_shrink(struct stepaf_transport *transport)
{
    end_connects((struct stepaf_ucx *)transport);
}

/* List what UCX can use, until links exist: then each link names what it uses. */
static void ucx_describe(const struct stepaf_transport *transport, char *text)
{
    const struct stepaf_ucx *ucx = (const struct stepaf_ucx *)transport;
    int used = snprintf(text, STEPAF_REASON_MAX, "%s", ucx->version);

    if (ucx->connects)
        stepaf_ucx_resources_text(ucx, text + used, STEPAF_REASON_MAX - (size_t)used);
}

static void ucx_query_memory(struct stepaf_transport *transport, size_t *per_link_p,
                             size_t *bounce_p)
{
    (void)transport;
    *per_link_p = sizeof(struct stepaf_ucx_link);
    *bounce_p = 0;
}

const struct stepaf_transport_ops stepaf_ucx_ops = {
    .name = "ucx",
    .caps = STEPAF_TRANSPORT_ASKED | STEPAF_TRANSPORT_GPU,
    .probe = ucx_probe,
    .open = ucx_open,
    .close = ucx_close,
    .describe = ucx_describe,
    .reg_mem = stepaf_ucx_reg_mem,
    .dereg_mem = stepaf_ucx_dereg_mem,
    .is_quiet = stepaf_ucx_is_quiet,
    .describe_gpu = stepaf_ucx_describe_gpu,
    .probe_gpu = ucx_probe_gpu,
    .pack_address = stepaf_ucx_pack_address,
    .pack_mem = stepaf_ucx_pack_mem,
    .connect = stepaf_ucx_connect,
    .disconnect = stepaf_ucx_disconnect,
    .finish_connects = stepaf_fabric_finish_connects,
    .prove_links = stepaf_fabric_prove_links,
    .shrink = ucx_shrink,
    .import_mem = stepaf_ucx_import_mem,
    .release_mem = stepaf_ucx_release_mem,
    .post = stepaf_ucx_post,
    .retire = stepaf_fabric_retire,
    .progress = stepaf_ucx_progress,
    .check_peers = stepaf_ucx_check_peers,
    .query_memory = ucx_query_memory,
};
