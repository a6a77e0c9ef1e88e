/* SPDX-License-Identifier: Apache-2.0 */
/* What is under way: it is placed part by part, overtaken, and told of at once or later. */
#include <stdlib.h>
#include <string.h>

#include "ucx_fabric_inside.h"

struct ucx_made ucx_made;
static struct worker *in_progress; /* of whom a callback may be called */
static struct request *taking;     /* in the callback of this message */

static uint32_t draw(uint32_t below)
{
    ucx_made.random_state = ucx_made.random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(ucx_made.random_state >> 4) * below >> 28);
}

/* Whether something happens now that may as well happen later. */
static bool at_will(void)
{
    return ucx_fabric.prompt || draw(2);
}

static bool one_in(unsigned n)
{
    return n && !draw(n);
}

bool ucx_fake_refuses(void)
{
    return ucx_fabric.refuse_call && !--ucx_fabric.refuse_call;
}

/* ---- what is under way ---- */

struct request *ucx_fake_request(enum kind kind, struct endpoint *endpoint)
{
    unsigned at = 0;

    while (at < SENDS && (ucx_made.requests[at].used || ucx_made.requests[at].wants_free))
        at++;
    side_must(at < SENDS, "requests");
    ucx_made.requests[at] = (struct request){
        .used = true, .kind = kind, .endpoint = endpoint, .number = ucx_made.request_number++};
    ucx_made.active[ucx_made.n_active++] = at;
    endpoint->under_way++;
    return &ucx_made.requests[at];
}

void ucx_fake_end(struct request *request)
{
    unsigned at = 0;

    while (&ucx_made.requests[ucx_made.active[at]] != request)
        at++;
    ucx_made.active[at] = ucx_made.active[--ucx_made.n_active];
    request->used = false;
    request->endpoint->is_connected = true;
    request->endpoint->under_way--;
    if (request->kind == CLOSE) {
        request->endpoint->used = false;
        ucx_fabric.n_open--;
    }
    free(request->copy);
    request->copy = NULL;
}

struct worker *ucx_fake_owner(const struct request *request)
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
           other->kind == MESSAGE && !ucx_fabric.prompt;
}

static bool is_behind_others(const struct request *request)
{
    for (unsigned i = 0; i < ucx_made.n_active; i++)
        if (is_earlier(&ucx_made.requests[ucx_made.active[i]], request) &&
            !ucx_made.requests[ucx_made.active[i]].at_target)
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
    memcpy(ucx_gpu_view(request->target) + from, ucx_gpu_view(request->source) + from, to - from);
    request->placed |= 1u << part;
    return false;
}

/* Whether it is a message of a post: of these the receiver knows one that it has. */
static bool may_come_twice(const struct request *request)
{
    struct stepaf_ucx_head head;

    if (request->id == STEPAF_UCX_QUICK)
        return true;
    side_must(request->header_bytes >= sizeof(head), "a head");
    memcpy(&head, request->header, sizeof(head));
    return head.kind == STEPAF_FABRIC_MESSAGE;
}

/* The receiver's callback for a message. */
static void deliver(struct request *request)
{
    struct worker *to = request->endpoint->to;
    bool told_only = request->is_kept ||
                     (!request->told_source && request->bytes > 1000 && one_in(ucx_fabric.told_in));
    ucp_am_recv_param_t param = {.recv_attr = told_only ? UCP_AM_RECV_ATTR_FLAG_RNDV : 0};
    uint8_t *data = malloc(request->bytes + 1); /* UCX's own buffer */

    side_must(data != NULL, "memory");
    if (request->bytes && !request->is_kept)
        memcpy(data, request->source, request->bytes);
    ucx_fabric.n_overtaken += is_behind_others(request);
    ucx_fabric.n_told += told_only;
    taking = request;
    ucs_status_t status =
        to->take[request->id](to->arg, request->header, request->header_bytes,
                              told_only ? (void *)request : data, request->bytes, &param);
    if (!told_only && may_come_twice(request) && one_in(ucx_fabric.twice_in)) {
        ucx_fabric.n_twice[request->id]++;
        (void)to->take[request->id](to->arg, request->header, request->header_bytes, data,
                                    request->bytes, &param);
    }
    taking = NULL;
    free(data);
    request->at_target = true;
    if (status != UCS_OK && !(status == UCS_INPROGRESS && told_only))
        ucx_fabric.n_misused++;
}

static void advance_message(struct request *request)
{
    struct worker *to = request->endpoint->to;

    if (!request->at_target && to == in_progress && at_will())
        deliver(request);
    else if (!request->told_source && request->endpoint->from == in_progress &&
             !request->fetched_by && (request->at_target || (!request->is_kept && at_will())))
        tell(request, UCS_OK);
    if (request->at_target && request->told_source)
        ucx_fake_end(request);
}

static void fail_request(struct request *request)
{
    if (ucx_fake_owner(request) != in_progress)
        return;
    if (request->of)
        request->of->fetched_by = NULL;
    if (!request->told_source)
        tell(request, request->kind == CLOSE ? UCS_OK : UCS_ERR_CONNECTION_RESET);
    ucx_fake_end(request);
}

static bool is_gone(const struct endpoint *endpoint)
{
    return !endpoint->to->used || ucx_fabric.dead & 1u << (endpoint->to - ucx_made.workers);
}

/* Who fetches has closed its own endpoint to the peer by force. */
static bool is_given_up(const struct request *request)
{
    bool given_up = request->kind == FETCH;

    for (int i = 0; i < ENDPOINTS && given_up; i++) {
        const struct endpoint *own = &ucx_made.endpoints[i];
        given_up = !own->used || own->closing || own->from != request->endpoint->to ||
                   own->to != request->endpoint->from;
    }
    return given_up;
}

/* One thing happens. */
static void advance(struct request *request)
{
    struct endpoint *endpoint = request->endpoint;

    if (request->fails || is_gone(endpoint) || (endpoint->closing && request->kind != CLOSE) ||
        is_given_up(request)) {
        fail_request(request);
        return;
    }
    if (ucx_fabric.mute & 1u << (endpoint->from - ucx_made.workers) && request->kind != CLOSE)
        return;
    switch (request->kind) {
    case MESSAGE:
        advance_message(request);
        return;
    case FETCH:
        if (all_placed(request) && in_progress == endpoint->to) {
            request->of->fetched_by = NULL;
            tell(request, UCS_OK);
            ucx_fake_end(request);
        }
        return;
    case FLUSH:
    case CLOSE:
        if (in_progress != endpoint->from || (request->kind == FLUSH && is_behind_others(request)))
            return;
        if (request->kind == CLOSE && endpoint->under_way > 1)
            return;
        if (!request->told_source)
            tell(request, UCS_OK);
        ucx_fake_end(request);
    }
}

/* The earliest that is under way, from a number on. */
static struct request *earliest(uint64_t from)
{
    struct request *first = NULL;

    for (unsigned i = 0; i < ucx_made.n_active; i++) {
        struct request *request = &ucx_made.requests[ucx_made.active[i]];
        if (request->number >= from && (!first || request->number < first->number))
            first = request;
    }
    return first;
}

static void advance_all(void)
{
    struct request *request;

    for (uint64_t from = 0; (request = earliest(from)); from = request->number + 1)
        for (int i = 0; i < PARTS + 2 && request->used; i++)
            advance(request);
}

/* Whether UCX has to have the GPU for what is under way. */
static bool moves_gpu(const struct worker *worker)
{
    bool does = false;

    for (unsigned i = 0; i < ucx_made.n_active && !does; i++) {
        const struct request *request = &ucx_made.requests[ucx_made.active[i]];
        does = request->is_gpu && !request->told_source && ucx_fake_owner(request) == worker;
    }
    return does;
}

unsigned ucx_fake_progress(ucp_worker_h worker)
{
    unsigned steps = ucx_fabric.prompt ? 0 : draw(STEPS);

    if (in_progress)
        ucx_fabric.n_misused++;
    in_progress = (struct worker *)worker;
    if (moves_gpu(in_progress))
        ucx_gpu_called();
    if (ucx_fabric.prompt)
        advance_all();
    for (unsigned i = 0; i < steps && ucx_made.n_active; i++)
        advance(&ucx_made.requests[ucx_made.active[draw(ucx_made.n_active)]]);
    in_progress = NULL;
    return steps;
}

/* ---- sending ---- */

ucs_status_ptr_t ucx_fake_send(struct request *request, const ucp_request_param_t *param)
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

static void note_gpu(struct request *request, const void *at, size_t bytes,
                     const ucp_request_param_t *param)
{
    bool good;

    request->is_gpu = bytes && ucx_gpu_is_meant(at, param, &good);
    if (bytes && !good)
        ucx_fabric.n_misused++;
    if (!request->is_gpu || !good)
        return;
    request->memh = (struct region *)param->memh;
    ucx_fabric.n_foreign += !request->memh->is_gpu || !is_own(at, bytes, request->memh);
}

ucs_status_ptr_t ucx_fake_am_send(ucp_ep_h ep, unsigned id, const void *header, size_t header_bytes,
                                  const void *buffer, size_t count,
                                  const ucp_request_param_t *param)
{
    if (!ep) { /* it is closed: UCX ends the process */
        ucx_fabric.n_misused++;
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    }
    if (ucx_fabric.refuse)
        return UCS_STATUS_PTR(ucx_fabric.refuse);
    side_must(id < HANDLERS && header_bytes <= ucx_fabric.header_max, "a message");
    ucx_fabric.n_messages++;
    struct request *request = ucx_fake_request(MESSAGE, (struct endpoint *)ep);
    request->id = id;
    request->header = header;
    request->header_bytes = header_bytes;
    request->source = buffer;
    request->bytes = count;
    request->is_kept =
        param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS && param->flags & UCP_AM_SEND_FLAG_RNDV;
    note_gpu(request, buffer, count, param);
    ucx_gpu.n_sent += request->is_gpu;
    ucx_fabric.n_misused += request->is_gpu && !request->is_kept;
    (void)ucx_fake_send(request, param);
    bool at_once = ucx_fabric.prompt ? !count : one_in(ucx_fabric.at_once_in);
    if (request->fails || !at_once || request->is_kept)
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

ucs_status_ptr_t ucx_fake_am_recv_data(ucp_worker_h worker, void *data, void *buffer, size_t count,
                                       const ucp_request_param_t *param)
{
    struct request *message = data;

    side_must(message == taking && count == message->bytes &&
                  (struct worker *)worker == message->endpoint->to,
              "a message to fetch");
    bool good, is_gpu = ucx_gpu_is_meant(buffer, param, &good);
    ucx_gpu.n_fetched += is_gpu;
    bool takes_gpu = is_gpu || (ucx_gpu.helps && message->is_gpu);
    if (takes_gpu && !is_gpu)
        ucx_gpu_called();
    if (one_in(ucx_fabric.at_once_in)) {
        ucx_fabric.n_misused += !good;
        memcpy(ucx_gpu_view(buffer), ucx_gpu_view(message->source), count);
        return NULL;
    }
    struct request *request = ucx_fake_request(FETCH, message->endpoint);
    note_gpu(request, buffer, count, param);
    request->is_gpu = takes_gpu;
    request->of = message;
    request->source = message->source;
    request->target = buffer;
    request->bytes = count;
    request->received = param->cb.recv_am;
    request->user_data = param->user_data;
    message->fetched_by = request;
    return request;
}

ucs_status_ptr_t ucx_fake_flush(ucp_ep_h ep, const ucp_request_param_t *param)
{
    struct endpoint *endpoint = (struct endpoint *)ep;

    if (ucx_fabric.refuse)
        return UCS_STATUS_PTR(ucx_fabric.refuse);
    if (!endpoint->under_way && one_in(ucx_fabric.at_once_in))
        return NULL;
    return ucx_fake_send(ucx_fake_request(FLUSH, endpoint), param);
}

void ucx_fake_request_free(void *request)
{
    struct request *it = request;

    if (!it->wants_free)
        ucx_fabric.n_misused++;
    it->wants_free = false;
}
