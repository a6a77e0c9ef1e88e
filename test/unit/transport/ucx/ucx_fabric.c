/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, workers, endpoints, memory, and the table of calls. */
#include <stdlib.h>
#include <string.h>

#include "ucx_fabric_inside.h"

struct ucx_fabric ucx_fabric;

static void fake_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    *major = 1;
    *minor = ucx_fabric.minor;
    *release = 0;
}

static ucs_status_t fake_init(unsigned major, unsigned minor, const ucp_params_t *params,
                              const ucp_config_t *config, ucp_context_h *context_p)
{
    static int context;

    side_must(major == 1 && minor == 13 && !config && params->features == UCP_FEATURE_AM,
              "a context");
    if (ucx_fake_refuses())
        return UCS_ERR_NO_DEVICE;
    *context_p = (ucp_context_h)(void *)&context;
    ucx_fabric.n_open++;
    return UCS_OK;
}

static void fake_cleanup(ucp_context_h context)
{
    (void)context;
    ucx_fabric.n_open--;
}

static ucs_status_t fake_worker_create(ucp_context_h context, const ucp_worker_params_t *params,
                                       ucp_worker_h *worker_p)
{
    unsigned at = 0;

    (void)context;
    if (ucx_fake_refuses())
        return UCS_ERR_NO_MEMORY;
    while (at < WORKERS && ucx_made.workers[at].used)
        at++;
    side_must(at < WORKERS && params->thread_mode == UCS_THREAD_MODE_SERIALIZED, "a worker");
    ucx_made.workers[at] = (struct worker){.used = true};
    *worker_p = (ucp_worker_h)(void *)&ucx_made.workers[at];
    ucx_fabric.n_open++;
    return UCS_OK;
}

static void fake_worker_destroy(ucp_worker_h worker)
{
    struct worker *it = (struct worker *)worker;

    for (unsigned i = ucx_made.n_active; i-- > 0;) {
        struct request *request = &ucx_made.requests[ucx_made.active[i]];
        if (ucx_fake_owner(request) == it && request->kind != MESSAGE)
            ucx_fabric.n_misused +=
                !request->told_source &&
                (request->kind == CLOSE || request->kind == FLUSH || request->is_gpu);
        if (request->endpoint->from == it)
            ucx_fake_end(request);
    }
    for (int i = 0; i < ENDPOINTS; i++)
        if (ucx_made.endpoints[i].used && ucx_made.endpoints[i].from == it) {
            ucx_made.endpoints[i].used = false;
            ucx_fabric.n_open--;
        }
    it->used = false;
    ucx_fabric.n_open--;
}

static ucs_status_t fake_worker_query(ucp_worker_h worker, ucp_worker_attr_t *attr)
{
    struct blob *blob = ucx_fake_refuses() ? NULL : malloc(sizeof(*blob));

    if (!blob)
        return UCS_ERR_NO_MEMORY;
    *blob = (struct blob){MARK, (uint64_t)((struct worker *)worker - ucx_made.workers)};
    attr->address = (ucp_address_t *)(void *)blob;
    attr->address_length = ucx_fabric.address_bytes ? ucx_fabric.address_bytes : sizeof(*blob);
    attr->max_am_header = ucx_fabric.header_max;
    ucx_fabric.n_open++;
    return UCS_OK;
}

static void fake_release_address(ucp_worker_h worker, ucp_address_t *address)
{
    (void)worker;
    free(address);
    ucx_fabric.n_open--;
}

static ucs_status_t fake_set_handler(ucp_worker_h worker, const ucp_am_handler_param_t *param)
{
    struct worker *it = (struct worker *)worker;

    side_must(param->id < HANDLERS && param->flags & UCP_AM_FLAG_WHOLE_MSG, "a handler");
    it->take[param->id] = param->cb;
    it->arg = param->arg;
    return ucx_fake_refuses() ? UCS_ERR_NO_MEMORY : UCS_OK;
}

static ucs_status_t fake_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params,
                                   ucp_ep_h *ep_p)
{
    struct blob blob;
    unsigned at = 0;

    memcpy(&blob, params->address, sizeof(blob));
    if (blob.mark != MARK || blob.number >= WORKERS || !ucx_made.workers[blob.number].used)
        return UCS_ERR_INVALID_ADDR;
    if (ucx_fabric.no_peer_errors && params->err_mode == UCP_ERR_HANDLING_MODE_PEER)
        return UCS_ERR_UNREACHABLE;
    while (at < ENDPOINTS && ucx_made.endpoints[at].used)
        at++;
    side_must(at < ENDPOINTS, "endpoints");
    ucx_made.endpoints[at] =
        (struct endpoint){.used = true,
                          .tells = params->err_mode == UCP_ERR_HANDLING_MODE_PEER,
                          .from = (struct worker *)worker,
                          .to = &ucx_made.workers[blob.number],
                          .handler = params->err_handler};
    *ep_p = (ucp_ep_h)(void *)&ucx_made.endpoints[at];
    ucx_fabric.n_open++;
    return UCS_OK;
}

static ucs_status_ptr_t fake_ep_close(ucp_ep_h ep, const ucp_request_param_t *param)
{
    struct endpoint *endpoint = (struct endpoint *)ep;
    bool by_force =
        param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS && param->flags & UCP_EP_CLOSE_FLAG_FORCE;

    if (by_force &&
        (!endpoint->tells || !endpoint->is_connected)) { /* the latter ends the process */
        ucx_fabric.n_misused++;
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    }
    endpoint->closing = by_force;
    struct request *request = ucx_fake_request(CLOSE, endpoint);
    if (!by_force)
        return ucx_fake_send(request, param);
    /* What is under way ends later, and nothing tells that the endpoint has. */
    request->told_source = true;
    return NULL;
}

static void fake_context_print_info(ucp_context_h context, FILE *stream)
{
    (void)context;
    fprintf(stream, "#\n# UCP context\n#\n%s#\n", ucx_fabric.resources);
}

static void fake_ep_print_info(ucp_ep_h ep, FILE *stream)
{
    (void)ep;
    fprintf(stream, "#\n# UCP endpoint\n#\n%s#\n", ucx_fabric.lanes);
}

static ucs_status_t fake_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                                 ucp_mem_h *memh_p)
{
    unsigned at = 0;

    (void)context;
    if (ucx_fake_refuses())
        return UCS_ERR_IO_ERROR;
    if (ucx_gpu_map(params) != UCS_OK)
        return ucx_gpu.refuse;
    while (at < REGIONS && ucx_made.regions[at].used)
        at++;
    side_must(at < REGIONS, "regions");
    ucx_made.regions[at] =
        (struct region){true, params->address, params->length, ++ucx_made.key_number,
                        params->field_mask & UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE};
    ucx_gpu.n_mapped += ucx_made.regions[at].is_gpu;
    *memh_p = (ucp_mem_h)(void *)&ucx_made.regions[at];
    ucx_fabric.n_open++;
    return UCS_OK;
}

static ucs_status_t fake_mem_unmap(ucp_context_h context, ucp_mem_h memh)
{
    struct region *region = (struct region *)memh;

    (void)context;
    for (unsigned i = 0; i < ucx_made.n_active; i++)
        ucx_fabric.n_misused += ucx_made.requests[ucx_made.active[i]].memh == region &&
                                !ucx_made.requests[ucx_made.active[i]].told_source;
    if (region->is_gpu) {
        ucx_gpu_called();
        ucx_gpu.n_mapped--;
    }
    region->used = false;
    ucx_fabric.n_open--;
    return UCS_OK;
}

static const char *fake_status_string(ucs_status_t status)
{
    return status == UCS_ERR_CONNECTION_RESET ? "the connection was reset"
           : status == UCS_ERR_INVALID_ADDR   ? "bad address"
                                              : "an error";
}

static ucs_status_t fake_context_query(ucp_context_h context, ucp_context_attr_t *attr)
{
    (void)context;
    side_must(attr->field_mask == UCP_ATTR_FIELD_MEMORY_TYPES, "memory types");
    attr->memory_types =
        1u << UCS_MEMORY_TYPE_HOST | (ucx_gpu.has_cuda ? 1u << UCS_MEMORY_TYPE_CUDA : 0u);
    return UCS_OK;
}

const struct stepaf_ucx_library ucx_fabric_library = {
    .get_version = fake_get_version,
    .init_version = fake_init,
    .cleanup = fake_cleanup,
    .context_query = fake_context_query,
    .worker_create = fake_worker_create,
    .worker_destroy = fake_worker_destroy,
    .worker_query = fake_worker_query,
    .worker_release_address = fake_release_address,
    .worker_progress = ucx_fake_progress,
    .worker_set_am_recv_handler = fake_set_handler,
    .ep_create = fake_ep_create,
    .ep_close_nbx = fake_ep_close,
    .ep_flush_nbx = ucx_fake_flush,
    .context_print_info = fake_context_print_info,
    .ep_print_info = fake_ep_print_info,
    .mem_map = fake_mem_map,
    .mem_unmap = fake_mem_unmap,
    .am_send_nbx = ucx_fake_am_send,
    .am_recv_data_nbx = ucx_fake_am_recv_data,
    .request_free = ucx_fake_request_free,
    .status_string = fake_status_string,
};

void ucx_fabric_reset(uint32_t seed)
{
    side_must(!ucx_fabric.n_open, "all is closed");
    memset(ucx_made.requests, 0, sizeof(ucx_made.requests));
    ucx_made.n_active = 0;
    ucx_made.random_state = seed;
    ucx_gpu = (struct ucx_gpu){.has_cuda = false};
    ucx_fabric = (struct ucx_fabric){
        .minor = 13,
        .header_max = 8192,
        .resources = "#     component 0  :  self\n"
                     "#      resource 0  :  md 0  dev 0  flags -- self/memory0\n"
                     "#      resource 1  :  md 1  dev 1  flags -- rc_verbs/mlx5_0:1\n"
                     "#      resource 2  :  md 1  dev 1  flags -- ud_verbs/mlx5_0:1\n"
                     "#      resource 3  :  md 1  dev 2  flags -- rc_verbs/mlx5_0:10\n"
                     "#      resource 4  :  md 2  dev 3  flags -- posix/memory\n",
        .lanes =
            "#   lane[0]:  1:rc_verbs/mlx5_0:1.0 md[1] -> md[1]/ib rma_bw#0 am am_bw#0 wireup\n"
            "#   lane[1]:  2:rc_verbs/mlx5_1:1.0 md[2] -> md[2]/ib rma_bw#1 am_bw#1\n",
        .at_once_in = 3,
        .told_in = 3};
    stepaf_ucx_library_fake = &ucx_fabric_library;
    side_ops = &stepaf_ucx_ops;
}

unsigned ucx_fabric_number(const struct side *side)
{
    return (unsigned)((struct worker *)ucx_of(side)->worker - ucx_made.workers);
}

void ucx_fabric_say(const struct side *side, const void *header, size_t header_bytes,
                    const void *data, size_t bytes)
{
    ucp_am_recv_param_t param = {0};
    uint8_t copy[65536];

    memcpy(copy, data, bytes);
    (void)stepaf_ucx_take(side->transport, header, header_bytes, copy, bytes, &param);
}

void ucx_fabric_say_quick(const struct side *side, const void *header, size_t header_bytes,
                          size_t bytes)
{
    ucp_am_recv_param_t param = {0};
    uint8_t data[8] = {0};

    (void)stepaf_ucx_take_quick(side->transport, header, header_bytes, data, bytes, &param);
}

void ucx_fabric_tell(const struct side *side, const void *header, size_t header_bytes)
{
    ucp_am_recv_param_t param = {.recv_attr = UCP_AM_RECV_ATTR_FLAG_RNDV};
    uint8_t none[8];

    (void)stepaf_ucx_take(side->transport, header, header_bytes, none, 0, &param);
}

void ucx_fabric_forget(void)
{
    while (ucx_made.n_active)
        ucx_fake_end(&ucx_made.requests[ucx_made.active[0]]);
    for (int i = 0; i < WORKERS; i++)
        ucx_made.workers[i].used = false;
    for (int i = 0; i < ENDPOINTS; i++)
        ucx_made.endpoints[i].used = false;
    for (int i = 0; i < REGIONS; i++)
        ucx_made.regions[i].used = false;
    ucx_fabric.n_open = 0;
    ucx_gpu.n_mapped = 0;
}

void ucx_fabric_break(const struct side *side, uint32_t peer, ucs_status_t status)
{
    const struct endpoint *endpoint = (struct endpoint *)ucx_link(side, peer)->ep;

    endpoint->handler.cb(endpoint->handler.arg, ucx_link(side, peer)->ep, status);
}

struct stepaf_ucx *ucx_of(const struct side *side)
{
    return (struct stepaf_ucx *)side->transport;
}

struct stepaf_ucx_link *ucx_link(const struct side *side, uint32_t peer)
{
    return (struct stepaf_ucx_link *)side->links[peer];
}
