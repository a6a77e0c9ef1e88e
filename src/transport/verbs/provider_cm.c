/* SPDX-License-Identifier: Apache-2.0 */
/* The table of librdmacm functions that the transport uses. */
#include "transport/verbs/provider_cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "base/fork.h"

/* The kernel reduces a larger value to its limit (net.rdma_ucm.max_backlog). */
enum { BACKLOG = 4096 };

static int failure(int result)
{
    return result ? errno : 0;
}

static struct rdma_event_channel *real_open(void)
{
    stepaf_fork_begin();
    struct rdma_event_channel *channel = rdma_create_event_channel();
    int trouble = channel ? stepaf_fork_add(channel->fd) : 0;
    (void)stepaf_fork_end(-1);
    if (trouble) {
        rdma_destroy_event_channel(channel);
        errno = trouble;
        return NULL;
    }
    int flags = channel ? fcntl(channel->fd, F_GETFL) : 0;

    if (channel)
        (void)fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK);
    return channel;
}

static void real_close(struct rdma_event_channel *channel)
{
    stepaf_fork_forget(channel->fd);
    rdma_destroy_event_channel(channel);
}

static struct rdma_cm_id *real_create(struct rdma_event_channel *channel, void *context,
                                      uint8_t traffic_class)
{
    struct rdma_cm_id *id;

    if (rdma_create_id(channel, &id, context, RDMA_PS_TCP))
        return NULL;
    if (traffic_class)
        (void)rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class,
                              sizeof(traffic_class));
    return id;
}

static void real_destroy(struct rdma_cm_id *id)
{
    (void)rdma_destroy_id(id);
}

static void real_adopt(struct rdma_cm_id *id, void *context)
{
    id->context = context;
}

static int real_listen(struct rdma_cm_id *id, const union ibv_gid *address, uint16_t *port_p)
{
    struct sockaddr_storage storage;

    stepaf_verbs_cm_to_socket(address, *port_p, &storage);
    if (rdma_bind_addr(id, (struct sockaddr *)&storage) || rdma_listen(id, BACKLOG))
        return errno;
    *port_p = ntohs(rdma_get_src_port(id));
    return 0;
}

static int real_resolve_address(struct rdma_cm_id *id, const union ibv_gid *from,
                                const union ibv_gid *to, uint16_t port, int timeout_ms)
{
    struct sockaddr_storage own, its;

    stepaf_verbs_cm_to_socket(from, 0, &own);
    stepaf_verbs_cm_to_socket(to, port, &its);
    return failure(
        rdma_resolve_addr(id, (struct sockaddr *)&own, (struct sockaddr *)&its, timeout_ms));
}

static int real_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
    return failure(rdma_resolve_route(id, timeout_ms));
}

static int real_init_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr_p, int *mask_p)
{
    return failure(rdma_init_qp_attr(id, attr_p, mask_p));
}

/* No READ is ever sent, but some devices treat a connection without any as an error. */
static struct rdma_conn_param to_param(const struct stepaf_verbs_cm_hello *hello)
{
    return (struct rdma_conn_param){
        .private_data = hello->data,
        .private_data_len = hello->bytes,
        .responder_resources = 1,
        .initiator_depth = 1,
        .retry_count = hello->retry,
        .rnr_retry_count = hello->rnr_retry,
        .qp_num = hello->qpn,
    };
}

static int real_connect(struct rdma_cm_id *id, const struct stepaf_verbs_cm_hello *hello)
{
    struct rdma_conn_param param = to_param(hello);

    return failure(rdma_connect(id, &param));
}

static int real_accept(struct rdma_cm_id *id, const struct stepaf_verbs_cm_hello *hello)
{
    struct rdma_conn_param param = to_param(hello);

    return failure(rdma_accept(id, &param));
}

static int real_establish(struct rdma_cm_id *id)
{
    return failure(rdma_establish(id));
}

static void real_reject(struct rdma_cm_id *id, const void *data, uint8_t bytes)
{
    (void)rdma_reject(id, data, bytes);
}

static void real_disconnect(struct rdma_cm_id *id)
{
    (void)rdma_disconnect(id);
}

static enum stepaf_verbs_cm_type to_type(enum rdma_cm_event_type type)
{
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        return STEPAF_VERBS_CM_ADDRESS;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return STEPAF_VERBS_CM_ROUTE;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        return STEPAF_VERBS_CM_REQUEST;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        return STEPAF_VERBS_CM_RESPONSE;
    case RDMA_CM_EVENT_ESTABLISHED:
        return STEPAF_VERBS_CM_ESTABLISHED;
    case RDMA_CM_EVENT_REJECTED:
        return STEPAF_VERBS_CM_REJECTED;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
        return STEPAF_VERBS_CM_FAILED;
    case RDMA_CM_EVENT_DISCONNECTED:
        return STEPAF_VERBS_CM_DISCONNECTED;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        return STEPAF_VERBS_CM_REMOVED;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return STEPAF_VERBS_CM_TIMEWAIT;
    default:
        return STEPAF_VERBS_CM_OTHER;
    }
}

static bool real_take_event(struct rdma_event_channel *channel, int timeout_ms,
                            struct stepaf_verbs_cm_event *event_p)
{
    struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;

    if (poll(&ready, 1, timeout_ms) != 1 || rdma_get_cm_event(channel, &event))
        return false;
    *event_p = (struct stepaf_verbs_cm_event){
        .type = to_type(event->event),
        .status = event->status,
        .text = rdma_event_str(event->event),
        .id = event->id,
        .listener = event->listen_id,
        .context = event->id->context,
        .bytes = event->param.conn.private_data ? event->param.conn.private_data_len : 0,
    };
    if (event_p->bytes > sizeof(event_p->data))
        event_p->bytes = sizeof(event_p->data);
    if (event_p->bytes)
        memcpy(event_p->data, event->param.conn.private_data, event_p->bytes);
    (void)rdma_ack_cm_event(event);
    return true;
}

const struct stepaf_verbs_cm_ops stepaf_verbs_cm_real = {
    .open = real_open,
    .close = real_close,
    .address = stepaf_verbs_cm_address,
    .create = real_create,
    .destroy = real_destroy,
    .adopt = real_adopt,
    .listen = real_listen,
    .resolve_address = real_resolve_address,
    .resolve_route = real_resolve_route,
    .is_on = stepaf_verbs_cm_is_on,
    .init_attr = real_init_attr,
    .connect = real_connect,
    .accept = real_accept,
    .establish = real_establish,
    .reject = real_reject,
    .disconnect = real_disconnect,
    .take_event = real_take_event,
};
