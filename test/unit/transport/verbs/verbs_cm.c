/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_queue.h"

enum { IDS = 512, EVENTS = 512, NO_LISTENER = 8, CONSUMER = 28 };

struct rdma_event_channel {
    struct stepaf_verbs_cm_event events[EVENTS];
    unsigned n;
};

struct rdma_cm_id {
    struct rdma_event_channel *channel;
    void *context;
    struct rdma_cm_id *far;
    struct stepaf_verbs_cm_hello hello; /* its own */
    union ibv_gid to;
    uint16_t to_port;
    uint16_t listens; /* 0: it does not */
};

struct verbs_cm verbs_cm;
static struct rdma_cm_id *ids[IDS];
static uint16_t next_port;

static const char *const texts[] = {
    [STEPAF_VERBS_CM_ADDRESS] = "address resolved", [STEPAF_VERBS_CM_ROUTE] = "route resolved",
    [STEPAF_VERBS_CM_REQUEST] = "request",          [STEPAF_VERBS_CM_RESPONSE] = "response",
    [STEPAF_VERBS_CM_ESTABLISHED] = "established",  [STEPAF_VERBS_CM_REJECTED] = "rejected",
    [STEPAF_VERBS_CM_FAILED] = "unreachable",       [STEPAF_VERBS_CM_DISCONNECTED] = "disconnected",
    [STEPAF_VERBS_CM_REMOVED] = "device removal",   [STEPAF_VERBS_CM_TIMEWAIT] = "timewait exit",
    [STEPAF_VERBS_CM_OTHER] = "something else",
};

static struct stepaf_verbs_cm_event *tell(struct rdma_cm_id *id, enum stepaf_verbs_cm_type type,
                                          int status)
{
    static struct stepaf_verbs_cm_event nowhere;
    struct stepaf_verbs_cm_event *event = &nowhere;

    if (id && !verbs_cm.silent && id->channel->n < EVENTS)
        event = &id->channel->events[id->channel->n++];
    *event = (struct stepaf_verbs_cm_event){
        .type = type, .status = status, .text = texts[type], .id = id};
    return event;
}

/* What networks carry is padded with zeros. */
static void tell_data(struct stepaf_verbs_cm_event *event, const void *data, size_t bytes)
{
    event->bytes = sizeof(event->data);
    if (bytes)
        memcpy(event->data, data, bytes);
}

/* The same of a request or an acceptance, which is kept. */
static void tell_hello(struct stepaf_verbs_cm_event *event,
                       const struct stepaf_verbs_cm_hello *hello)
{
    tell_data(event, hello->data, hello->bytes);
    if (verbs_cm.n_said < 2)
        memcpy(verbs_cm.said[verbs_cm.n_said], event->data, sizeof(event->data));
    verbs_cm.n_said++;
}

static struct rdma_event_channel *open_channel(void)
{
    if (verbs_cm.no_channel) {
        errno = ENODEV;
        return NULL;
    }
    verbs_device.n_open++;
    return calloc(1, sizeof(struct rdma_event_channel));
}

static void close_channel(struct rdma_event_channel *channel)
{
    verbs_device.n_open--;
    free(channel);
}

static int find_address(struct rdma_event_channel *channel, struct ibv_context *context,
                        uint8_t port, union ibv_gid *address_p)
{
    static const union ibv_gid address = {
        .raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [14] = 7, [15] = 1}};

    (void)channel, (void)port;
    if (verbs_cm.no_address)
        return ENODEV;
    *address_p = address;
    address_p->raw[13] = (uint8_t)(context->device->name[4] - '0');
    return 0;
}

static struct rdma_cm_id *create_id(struct rdma_event_channel *channel, void *context,
                                    uint8_t traffic_class)
{
    struct rdma_cm_id *id = calloc(1, sizeof(*id));
    unsigned at = 0;

    (void)traffic_class;
    while (ids[at])
        at++;
    ids[at] = id;
    *id = (struct rdma_cm_id){.channel = channel, .context = context};
    verbs_device.n_open++;
    return id;
}

/* Its events go with it, and the other end learns of it. */
static void destroy_id(struct rdma_cm_id *id)
{
    struct rdma_event_channel *channel = id->channel;
    unsigned kept = 0;

    for (unsigned i = 0; i < channel->n; i++)
        if (channel->events[i].id != id)
            channel->events[kept++] = channel->events[i];
    channel->n = kept;
    if (id->far) {
        id->far->far = NULL;
        tell(id->far, STEPAF_VERBS_CM_DISCONNECTED, 0);
    }
    for (unsigned i = 0; i < IDS; i++)
        if (ids[i] == id)
            ids[i] = NULL;
    free(id);
    verbs_device.n_open--;
}

static void adopt(struct rdma_cm_id *id, void *context)
{
    id->context = context;
}

static int listen_at(struct rdma_cm_id *id, const union ibv_gid *address, uint16_t *port_p)
{
    if (verbs_cm.busy_ports && verbs_cm.busy_ports--)
        return EADDRINUSE;
    if (!*port_p)
        *port_p = ++next_port;
    id->to = *address;
    id->listens = *port_p;
    return 0;
}

static int resolve_address(struct rdma_cm_id *id, const union ibv_gid *from,
                           const union ibv_gid *to, uint16_t port, int timeout_ms)
{
    (void)from, (void)timeout_ms;
    id->to = *to;
    id->to_port = port;
    tell(id, verbs_cm.fail_address ? STEPAF_VERBS_CM_FAILED : STEPAF_VERBS_CM_ADDRESS,
         verbs_cm.fail_address);
    return 0;
}

static int resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
    (void)timeout_ms;
    tell(id, verbs_cm.fail_route ? STEPAF_VERBS_CM_FAILED : STEPAF_VERBS_CM_ROUTE,
         verbs_cm.fail_route);
    return 0;
}

static bool is_on(const struct rdma_cm_id *id, const struct ibv_context *context, uint8_t port)
{
    (void)id, (void)context, (void)port;
    return !verbs_cm.other_device;
}

static int init_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr_p, int *mask_p)
{
    *mask_p = IBV_QP_STATE;
    if (attr_p->qp_state == IBV_QPS_INIT)
        *mask_p |= IBV_QP_ACCESS_FLAGS;
    else if (attr_p->qp_state == IBV_QPS_RTS)
        *mask_p |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
    if (attr_p->qp_state == IBV_QPS_RTR && id->far)
        attr_p->dest_qp_num = id->far->hello.qpn;
    return 0;
}

static struct rdma_cm_id *find_listener(const union ibv_gid *address, uint16_t port)
{
    for (unsigned i = 0; i < IDS; i++)
        if (ids[i] && ids[i]->listens == port && port &&
            (!address || !memcmp(&ids[i]->to, address, sizeof(*address))))
            return ids[i];
    return NULL;
}

static bool is_iwarp(const struct rdma_cm_id *id)
{
    return verbs_queue_is_iwarp(&verbs_pairs[id->hello.qpn]->qp);
}

static int connect_to(struct rdma_cm_id *id, const struct stepaf_verbs_cm_hello *hello)
{
    struct rdma_cm_id *listener = find_listener(&id->to, id->to_port);

    id->hello = *hello;
    if (verbs_cm.fail_connect) {
        tell(id, STEPAF_VERBS_CM_FAILED, verbs_cm.fail_connect);
    } else if (!listener || verbs_cm.nobody_listens) {
        tell(id, STEPAF_VERBS_CM_REJECTED, is_iwarp(id) ? -ECONNREFUSED : NO_LISTENER);
    } else if (verbs_cm.no_room && verbs_cm.no_room--) {
        tell_data(tell(id, STEPAF_VERBS_CM_REJECTED, CONSUMER), NULL, 0);
    } else {
        struct rdma_cm_id *answers = create_id(listener->channel, NULL, 0);
        struct stepaf_verbs_cm_event *event = tell(answers, STEPAF_VERBS_CM_REQUEST, 0);
        answers->far = id;
        id->far = answers;
        event->listener = listener;
        tell_hello(event, hello);
        verbs_cm.n_requests++;
    }
    return 0;
}

/* On iWARP that makes both queue pairs ready. */
static void make_ready(const struct rdma_cm_id *one, const struct rdma_cm_id *other)
{
    verbs_pairs[one->hello.qpn]->far = other->hello.qpn;
    verbs_pairs[one->hello.qpn]->state = IBV_QPS_RTS;
}

static int accept_from(struct rdma_cm_id *id, const struct stepaf_verbs_cm_hello *hello)
{
    struct stepaf_verbs_cm_event *event;

    id->hello = *hello;
    verbs_cm.n_accepted++;
    if (!id->far)
        return ECONNRESET;
    event = tell(id->far, is_iwarp(id) ? STEPAF_VERBS_CM_ESTABLISHED : STEPAF_VERBS_CM_RESPONSE, 0);
    tell_hello(event, hello);
    if (verbs_cm.bad_answer)
        event->data[hello->bytes - 1] ^= 1;
    if (is_iwarp(id)) {
        make_ready(id, id->far);
        make_ready(id->far, id);
        tell(id, STEPAF_VERBS_CM_ESTABLISHED, 0);
    }
    return 0;
}

static int establish(struct rdma_cm_id *id)
{
    tell(id->far, STEPAF_VERBS_CM_ESTABLISHED, 0);
    return 0;
}

static void reject(struct rdma_cm_id *id, const void *data, uint8_t bytes)
{
    verbs_cm.n_rejected++;
    if (!id->far)
        return;
    tell_data(tell(id->far, STEPAF_VERBS_CM_REJECTED, CONSUMER), data, bytes);
    id->far->far = NULL;
    id->far = NULL;
}

static void disconnect(struct rdma_cm_id *id)
{
    if (!id->far)
        return;
    tell(id->far, STEPAF_VERBS_CM_DISCONNECTED, 0);
    id->far->far = NULL;
    id->far = NULL;
}

static bool take_event(struct rdma_event_channel *channel, int timeout_ms,
                       struct stepaf_verbs_cm_event *event_p)
{
    (void)timeout_ms; /* nothing comes by waiting: all is in this thread */
    if (!channel->n)
        return false;
    *event_p = channel->events[0];
    event_p->context = event_p->id ? event_p->id->context : NULL;
    channel->n--;
    memmove(channel->events, channel->events + 1, channel->n * sizeof(channel->events[0]));
    return true;
}

const struct stepaf_verbs_cm_ops verbs_cm_ops = {
    .open = open_channel,
    .close = close_channel,
    .address = find_address,
    .create = create_id,
    .destroy = destroy_id,
    .adopt = adopt,
    .listen = listen_at,
    .resolve_address = resolve_address,
    .resolve_route = resolve_route,
    .is_on = is_on,
    .init_attr = init_attr,
    .connect = connect_to,
    .accept = accept_from,
    .establish = establish,
    .reject = reject,
    .disconnect = disconnect,
    .take_event = take_event,
};

void verbs_cm_reset(void)
{
    verbs_cm = (struct verbs_cm){0};
}

void verbs_cm_event(uint32_t qpn, enum stepaf_verbs_cm_type type, int status)
{
    for (unsigned i = 0; i < IDS; i++)
        if (ids[i] && ids[i]->hello.qpn == qpn)
            tell(ids[i], type, status);
}

void verbs_cm_stranger(uint16_t port, const void *data, size_t bytes)
{
    struct rdma_cm_id *listener = find_listener(NULL, port);
    struct rdma_cm_id *id = create_id(listener->channel, NULL, 0);
    struct stepaf_verbs_cm_event *event = tell(id, STEPAF_VERBS_CM_REQUEST, 0);

    event->listener = listener;
    event->bytes = bytes;
    memcpy(event->data, data, bytes);
}
