/* SPDX-License-Identifier: Apache-2.0 */
#include "ucx_fabric.h"

#include <stdlib.h>
#include <string.h>

enum {
    WORKERS = 8,
    ENDPOINTS = 32,
    REGIONS = 64,
    SENDS = 4096,
    PARTS = 4,
    STEPS = 12,
    MARK = 0x75637866
};

struct ucx_fabric ucx_fabric;

/* UCX's types are of no known content: these are what pointers to them point to. */
struct region {
    bool used;
    uint8_t *base;
    size_t bytes;
    uint64_t key;
};

struct worker {
    bool used;
    ucp_am_recv_callback_t take;
    void *arg;
};

struct endpoint {
    bool used, closing;
    bool tells;
    unsigned under_way;
    struct worker *from, *to;
    ucp_err_handler_t handler;
};

struct blob {
    uint64_t mark, number;
};

enum kind { PUT, MESSAGE, FLUSH, CLOSE, FETCH };

struct request {
    bool used, wants_free; /* told, and not freed yet */
    enum kind kind;
    struct endpoint *endpoint;
    uint64_t number;
    const uint8_t *source;
    uint8_t *copy; /* once the sender has been told */
    uint8_t *target;
    size_t bytes;
    unsigned placed; /* a bit for each part */
    const void *header;
    uint8_t head[STEPAF_UCX_HEAD_MAX];
    size_t header_bytes;
    bool told_source, at_target, fails;
    struct request *fetched_by, *of; /* MESSAGE that is told only; FETCH */
    ucp_send_nbx_callback_t sent;
    ucp_am_recv_data_nbx_callback_t received;
    void *user_data;
};

static struct worker workers[WORKERS];
static struct endpoint endpoints[ENDPOINTS];
static struct region regions[REGIONS];
static struct request requests[SENDS];
static unsigned n_active, active[SENDS];
static uint32_t random_state;
static uint64_t request_number, key_number;
static struct worker *in_progress; /* of whom a callback may be called */
static struct request *taking;     /* in the callback of this message */

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(random_state >> 4) * below >> 28);
}

static bool one_in(unsigned n)
{
    return n && !draw(n);
}

static bool refuses_call(void)
{
    return ucx_fabric.refuse_call && !--ucx_fabric.refuse_call;
}

/* ---- what is under way ---- */

static struct request *make_request(enum kind kind, struct endpoint *endpoint)
{
    unsigned at = 0;

    while (at < SENDS && (requests[at].used || requests[at].wants_free))
        at++;
    side_must(at < SENDS, "requests");
    requests[at] = (struct request){
        .used = true, .kind = kind, .endpoint = endpoint, .number = request_number++};
    active[n_active++] = at;
    endpoint->under_way++;
    return &requests[at];
}

static void end_request(struct request *request)
{
    unsigned at = 0;

    while (&requests[active[at]] != request)
        at++;
    active[at] = active[--n_active];
    request->used = false;
    request->endpoint->under_way--;
    if (request->kind == CLOSE) {
        request->endpoint->used = false;
        ucx_fabric.n_open--;
    }
    free(request->copy);
    request->copy = NULL;
}

static struct worker *owner_of(const struct request *request)
{
    return request->kind == FETCH ? request->endpoint->to : request->endpoint->from;
}

/* The sender, or who fetches, is told; from here on its memory is its own. */
static void tell(struct request *request, ucs_status_t status)
{
    if (request->told_source)
        return;
    if (request->kind == MESSAGE && !request->at_target && status == UCS_OK) {
        request->copy = malloc(request->bytes + 1);
        side_must(request->copy != NULL, "memory");
        if (request->bytes)
            memcpy(request->copy, request->source, request->bytes);
        memcpy(request->head, request->header, request->header_bytes);
        request->source = request->copy;
        request->header = request->head;
    }
    request->told_source = true;
    request->wants_free = true;
    if (request->kind == FETCH)
        request->received(request, status, request->bytes, request->user_data);
    else
        request->sent(request, status, request->user_data);
}

static bool is_earlier(const struct request *other, const struct request *request)
{
    return other->endpoint == request->endpoint && other->number < request->number &&
           (other->kind == PUT || other->kind == MESSAGE);
}

static bool is_behind_others(const struct request *request)
{
    for (unsigned i = 0; i < n_active; i++)
        if (is_earlier(&requests[active[i]], request) && !requests[active[i]].at_target)
            return true;
    return false;
}

static bool all_placed(struct request *request)
{
    unsigned part = draw(PARTS);

    if (request->placed == (1u << PARTS) - 1)
        return true;
    while (request->placed & 1u << part)
        part = (part + 1) % PARTS;
    size_t from = request->bytes * part / PARTS, to = request->bytes * (part + 1) / PARTS;
    memcpy(request->target + from, request->source + from, to - from);
    request->placed |= 1u << part;
    return false;
}

/* The receiver's callback for a message. */
static void deliver(struct request *request)
{
    struct worker *to = request->endpoint->to;
    bool told_only = !request->told_source && request->bytes > 1000 && one_in(ucx_fabric.told_in);
    ucp_am_recv_param_t param = {.recv_attr = told_only ? UCP_AM_RECV_ATTR_FLAG_RNDV : 0};
    struct stepaf_ucx_head head = {0};
    uint8_t *data = malloc(request->bytes + 1); /* UCX's own buffer */

    side_must(data != NULL, "memory");
    if (request->bytes)
        memcpy(data, request->source, request->bytes);
    if (request->header_bytes >= sizeof(head))
        memcpy(&head, request->header, sizeof(head));
    ucx_fabric.n_overtaken += is_behind_others(request);
    ucx_fabric.n_told += told_only;
    taking = request;
    ucs_status_t status = to->take(to->arg, request->header, request->header_bytes,
                                   told_only ? (void *)request : data, request->bytes, &param);
    if (!told_only && head.kind == STEPAF_FABRIC_MESSAGE && one_in(ucx_fabric.twice_in))
        (void)to->take(to->arg, request->header, request->header_bytes, data, request->bytes,
                       &param);
    taking = NULL;
    free(data);
    request->at_target = true;
    if (status != UCS_OK && !(status == UCS_INPROGRESS && told_only))
        ucx_fabric.n_misused++;
}

static void advance_message(struct request *request)
{
    struct worker *to = request->endpoint->to;

    if (!request->at_target && to == in_progress && draw(2))
        deliver(request);
    else if (!request->told_source && request->endpoint->from == in_progress &&
             !request->fetched_by && (request->at_target || draw(2)))
        tell(request, UCS_OK);
    if (request->at_target && request->told_source)
        end_request(request);
}

static void fail_request(struct request *request)
{
    if (owner_of(request) != in_progress)
        return;
    if (request->of)
        request->of->fetched_by = NULL;
    if (!request->told_source)
        tell(request, request->kind == CLOSE ? UCS_OK : UCS_ERR_CONNECTION_RESET);
    end_request(request);
}

static bool is_gone(const struct endpoint *endpoint)
{
    return !endpoint->to->used || ucx_fabric.dead & 1u << (endpoint->to - workers);
}

/* One thing happens. */
static void advance(struct request *request)
{
    struct endpoint *endpoint = request->endpoint;

    if (request->fails || is_gone(endpoint) || (endpoint->closing && request->kind != CLOSE)) {
        fail_request(request);
        return;
    }
    if (ucx_fabric.mute & 1u << (endpoint->from - workers) && request->kind != CLOSE)
        return;
    switch (request->kind) {
    case MESSAGE:
        advance_message(request);
        return;
    case PUT:
        if (!request->at_target)
            request->at_target = all_placed(request);
        else if (in_progress == endpoint->from) {
            tell(request, UCS_OK);
            end_request(request);
        }
        return;
    case FETCH:
        if (all_placed(request) && in_progress == endpoint->to) {
            request->of->fetched_by = NULL;
            tell(request, UCS_OK);
            end_request(request);
        }
        return;
    case FLUSH:
    case CLOSE:
        if (in_progress != endpoint->from || (request->kind == FLUSH && is_behind_others(request) &&
                                              !one_in(ucx_fabric.flush_forgets)))
            return;
        if (request->kind == CLOSE && endpoint->under_way > 1)
            return;
        tell(request, UCS_OK);
        end_request(request);
    }
}

static unsigned fake_worker_progress(ucp_worker_h worker)
{
    unsigned steps = draw(STEPS);

    if (in_progress)
        ucx_fabric.n_misused++;
    in_progress = (struct worker *)worker;
    for (unsigned i = 0; i < steps && n_active; i++)
        advance(&requests[active[draw(n_active)]]);
    in_progress = NULL;
    return steps;
}

/* ---- sending ---- */

static ucs_status_ptr_t ucx_send(struct request *request, const ucp_request_param_t *param)
{
    const uint32_t needed = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;

    if (in_progress || (param->op_attr_mask & needed) != needed)
        ucx_fabric.n_misused++;
    request->sent = param->cb.send;
    request->user_data = param->user_data;
    request->fails = ucx_fabric.fail_after && !--ucx_fabric.fail_after;
    return request;
}

static bool is_own(const void *source, size_t bytes, const struct region *memh)
{
    return memh->used && (const uint8_t *)source >= memh->base &&
           (const uint8_t *)source + bytes <= memh->base + memh->bytes;
}

static ucs_status_ptr_t fake_put(ucp_ep_h ep, const void *buffer, size_t count, uint64_t address,
                                 ucp_rkey_h rkey, const ucp_request_param_t *param)
{
    struct region *there = (struct region *)rkey;
    uint8_t *target = (uint8_t *)(uintptr_t)address;

    if (ucx_fabric.refuse)
        return UCS_STATUS_PTR(ucx_fabric.refuse);
    ucx_fabric.n_puts++;
    if (!is_own(buffer, count, (struct region *)param->memh) || !is_own(target, count, there))
        ucx_fabric.n_foreign++;
    if (one_in(ucx_fabric.at_once_in)) {
        memcpy(target, buffer, count);
        return NULL;
    }
    struct request *request = make_request(PUT, (struct endpoint *)ep);
    request->source = buffer;
    request->target = target;
    request->bytes = count;
    return ucx_send(request, param);
}

static ucs_status_ptr_t fake_am_send(ucp_ep_h ep, unsigned id, const void *header,
                                     size_t header_bytes, const void *buffer, size_t count,
                                     const ucp_request_param_t *param)
{
    if (ucx_fabric.refuse)
        return UCS_STATUS_PTR(ucx_fabric.refuse);
    side_must(id == STEPAF_UCX_MESSAGE && header_bytes <= STEPAF_UCX_HEAD_MAX, "a message");
    ucx_fabric.n_messages++;
    struct request *request = make_request(MESSAGE, (struct endpoint *)ep);
    request->header = header;
    request->header_bytes = header_bytes;
    request->source = buffer;
    request->bytes = count;
    (void)ucx_send(request, param);
    if (request->fails || !one_in(ucx_fabric.at_once_in))
        return request;
    request->copy = malloc(count + 1); /* done, as far as the sender is concerned */
    side_must(request->copy != NULL, "memory");
    if (count)
        memcpy(request->copy, buffer, count);
    memcpy(request->head, header, header_bytes);
    request->source = request->copy;
    request->header = request->head;
    request->told_source = true;
    return NULL;
}

static ucs_status_ptr_t fake_am_recv_data(ucp_worker_h worker, void *data, void *buffer,
                                          size_t count, const ucp_request_param_t *param)
{
    struct request *message = data;

    side_must(message == taking && count == message->bytes &&
                  (struct worker *)worker == message->endpoint->to,
              "a message to fetch");
    if (one_in(ucx_fabric.at_once_in)) {
        memcpy(buffer, message->source, count);
        return NULL;
    }
    struct request *request = make_request(FETCH, message->endpoint);
    request->of = message;
    request->source = message->source;
    request->target = buffer;
    request->bytes = count;
    request->received = param->cb.recv_am;
    request->user_data = param->user_data;
    message->fetched_by = request;
    return request;
}

static ucs_status_ptr_t fake_flush(ucp_ep_h ep, const ucp_request_param_t *param)
{
    struct endpoint *endpoint = (struct endpoint *)ep;

    if (ucx_fabric.refuse)
        return UCS_STATUS_PTR(ucx_fabric.refuse);
    if (!endpoint->under_way && one_in(ucx_fabric.at_once_in))
        return NULL;
    return ucx_send(make_request(FLUSH, endpoint), param);
}

static void fake_request_free(void *request)
{
    struct request *it = request;

    if (!it->wants_free)
        ucx_fabric.n_misused++;
    it->wants_free = false;
}

/* ---- objects ---- */

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

    side_must(major == 1 && minor == 13 && !config &&
                  params->features == (UCP_FEATURE_AM | UCP_FEATURE_RMA),
              "a context");
    if (refuses_call())
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
    if (refuses_call())
        return UCS_ERR_NO_MEMORY;
    while (at < WORKERS && workers[at].used)
        at++;
    side_must(at < WORKERS && params->thread_mode == UCS_THREAD_MODE_SERIALIZED, "a worker");
    workers[at] = (struct worker){.used = true};
    *worker_p = (ucp_worker_h)(void *)&workers[at];
    ucx_fabric.n_open++;
    return UCS_OK;
}

static void fake_worker_destroy(ucp_worker_h worker)
{
    struct worker *it = (struct worker *)worker;

    for (unsigned i = n_active; i-- > 0;) {
        struct request *request = &requests[active[i]];
        if (owner_of(request) == it && request->kind != MESSAGE)
            ucx_fabric.n_misused += request->kind == CLOSE || request->kind == FLUSH;
        if (request->endpoint->from == it)
            end_request(request);
    }
    for (int i = 0; i < ENDPOINTS; i++)
        if (endpoints[i].used && endpoints[i].from == it) {
            endpoints[i].used = false;
            ucx_fabric.n_open--;
        }
    it->used = false;
    ucx_fabric.n_open--;
}

static ucs_status_t fake_worker_query(ucp_worker_h worker, ucp_worker_attr_t *attr)
{
    struct blob *blob = refuses_call() ? NULL : malloc(sizeof(*blob));

    if (!blob)
        return UCS_ERR_NO_MEMORY;
    *blob = (struct blob){MARK, (uint64_t)((struct worker *)worker - workers)};
    attr->address = (ucp_address_t *)(void *)blob;
    attr->address_length = sizeof(*blob);
    attr->max_am_header = 8192;
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

    side_must(param->id == STEPAF_UCX_MESSAGE && param->flags & UCP_AM_FLAG_WHOLE_MSG, "a handler");
    it->take = param->cb;
    it->arg = param->arg;
    return refuses_call() ? UCS_ERR_NO_MEMORY : UCS_OK;
}

static ucs_status_t fake_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params,
                                   ucp_ep_h *ep_p)
{
    struct blob blob;
    unsigned at = 0;

    memcpy(&blob, params->address, sizeof(blob));
    if (blob.mark != MARK || blob.number >= WORKERS || !workers[blob.number].used)
        return UCS_ERR_INVALID_ADDR;
    if (ucx_fabric.no_peer_errors && params->err_mode == UCP_ERR_HANDLING_MODE_PEER)
        return UCS_ERR_UNREACHABLE;
    while (at < ENDPOINTS && endpoints[at].used)
        at++;
    side_must(at < ENDPOINTS, "endpoints");
    endpoints[at] = (struct endpoint){.used = true,
                                      .tells = params->err_mode == UCP_ERR_HANDLING_MODE_PEER,
                                      .from = (struct worker *)worker,
                                      .to = &workers[blob.number],
                                      .handler = params->err_handler};
    *ep_p = (ucp_ep_h)(void *)&endpoints[at];
    ucx_fabric.n_open++;
    return UCS_OK;
}

static ucs_status_ptr_t fake_ep_close(ucp_ep_h ep, const ucp_request_param_t *param)
{
    struct endpoint *endpoint = (struct endpoint *)ep;
    bool by_force =
        param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS && param->flags & UCP_EP_CLOSE_FLAG_FORCE;

    if (by_force && !endpoint->tells) {
        ucx_fabric.n_misused++;
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    }
    endpoint->closing = by_force;
    struct request *request = make_request(CLOSE, endpoint);
    return ucx_send(request, param);
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
    if (refuses_call())
        return UCS_ERR_IO_ERROR;
    while (at < REGIONS && regions[at].used)
        at++;
    side_must(at < REGIONS, "regions");
    regions[at] = (struct region){true, params->address, params->length, ++key_number};
    *memh_p = (ucp_mem_h)(void *)&regions[at];
    ucx_fabric.n_open++;
    return UCS_OK;
}

static ucs_status_t fake_mem_unmap(ucp_context_h context, ucp_mem_h memh)
{
    (void)context;
    ((struct region *)memh)->used = false;
    ucx_fabric.n_open--;
    return UCS_OK;
}

static ucs_status_t fake_rkey_pack(ucp_context_h context, ucp_mem_h memh, void **key_p,
                                   size_t *bytes_p)
{
    struct blob *blob = malloc(sizeof(*blob));

    (void)context;
    if (!blob)
        return UCS_ERR_NO_MEMORY;
    *blob = (struct blob){MARK, (uint64_t)((struct region *)memh - regions)};
    *key_p = blob;
    *bytes_p = sizeof(*blob);
    ucx_fabric.n_open++;
    return UCS_OK;
}

static void fake_rkey_buffer_release(void *key)
{
    free(key);
    ucx_fabric.n_open--;
}

static ucs_status_t fake_rkey_unpack(ucp_ep_h ep, const void *key, ucp_rkey_h *rkey_p)
{
    struct blob blob;

    (void)ep;
    memcpy(&blob, key, sizeof(blob));
    if (blob.mark != MARK || blob.number >= REGIONS)
        return UCS_ERR_INVALID_PARAM;
    *rkey_p = (ucp_rkey_h)(void *)&regions[blob.number];
    ucx_fabric.n_open++;
    return UCS_OK;
}

static void fake_rkey_destroy(ucp_rkey_h rkey)
{
    (void)rkey;
    ucx_fabric.n_open--;
}

static const char *fake_status_string(ucs_status_t status)
{
    return status == UCS_ERR_CONNECTION_RESET ? "the connection was reset"
           : status == UCS_ERR_INVALID_ADDR   ? "bad address"
                                              : "an error";
}

static const struct stepaf_ucx_library fake_library = {
    .get_version = fake_get_version,
    .init_version = fake_init,
    .cleanup = fake_cleanup,
    .worker_create = fake_worker_create,
    .worker_destroy = fake_worker_destroy,
    .worker_query = fake_worker_query,
    .worker_release_address = fake_release_address,
    .worker_progress = fake_worker_progress,
    .worker_set_am_recv_handler = fake_set_handler,
    .ep_create = fake_ep_create,
    .ep_close_nbx = fake_ep_close,
    .ep_flush_nbx = fake_flush,
    .ep_print_info = fake_ep_print_info,
    .mem_map = fake_mem_map,
    .mem_unmap = fake_mem_unmap,
    .rkey_pack = fake_rkey_pack,
    .rkey_buffer_release = fake_rkey_buffer_release,
    .ep_rkey_unpack = fake_rkey_unpack,
    .rkey_destroy = fake_rkey_destroy,
    .put_nbx = fake_put,
    .am_send_nbx = fake_am_send,
    .am_recv_data_nbx = fake_am_recv_data,
    .request_free = fake_request_free,
    .status_string = fake_status_string,
};

void ucx_fabric_reset(uint32_t seed)
{
    side_must(!ucx_fabric.n_open, "all is closed");
    memset(requests, 0, sizeof(requests));
    n_active = 0;
    random_state = seed;
    ucx_fabric = (struct ucx_fabric){
        .minor = 13,
        .lanes = "#   lane[0]:  1:rc_verbs/mlx5_0:1.0 md[1] -> md[1]/ib am am_bw#0 rma#0 wireup\n"
                 "#   lane[1]:  2:rc_verbs/mlx5_1:1.0 md[2] -> md[2]/ib rma#1\n",
        .at_once_in = 3,
        .told_in = 3};
    stepaf_ucx_library_fake = &fake_library;
    side_ops = &stepaf_ucx_ops;
}

unsigned ucx_fabric_number(const struct side *side)
{
    return (unsigned)((struct worker *)ucx_of(side)->worker - workers);
}

void ucx_fabric_say(const struct side *side, const void *header, size_t header_bytes,
                    const void *data, size_t bytes)
{
    ucp_am_recv_param_t param = {0};
    uint8_t copy[65536];

    memcpy(copy, data, bytes);
    (void)stepaf_ucx_take(side->transport, header, header_bytes, copy, bytes, &param);
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
