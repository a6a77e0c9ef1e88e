/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs_cm.h"

struct verbs_device verbs_device;
static struct ibv_device devices[DEVICES];
static struct ibv_async_event event;
static bool has_event;

static struct ibv_device **device_list(int *n_p)
{
    struct ibv_device **list = calloc(DEVICES + 1, sizeof(*list));

    for (int i = 0; list && i < verbs_device.n_devices; i++) {
        if (verbs_device.names)
            snprintf(devices[i].name, sizeof(devices[i].name), "%s", verbs_device.names[i]);
        else if (!devices[i].name[0]) /* ranks that are threads look at it at the same time */
            snprintf(devices[i].name, sizeof(devices[i].name), "fake%d", i);
        devices[i].transport_type = verbs_device.is_efa ? IBV_TRANSPORT_UNSPECIFIED
                                    : verbs_device.is_iwarp || (verbs_device.is_mixed && i % 2)
                                        ? IBV_TRANSPORT_IWARP
                                        : IBV_TRANSPORT_IB;
        list[i] = &devices[i];
    }
    *n_p = verbs_device.n_devices;
    return list;
}

static void device_list_free(struct ibv_device **list)
{
    free(list);
}

static const char *device_name(struct ibv_device *device)
{
    return device->name;
}

static int core(void)
{
    return verbs_device.core;
}

static int fork_init(void)
{
    verbs_device.n_forks++;
    return verbs_device.refuse_fork;
}

static void choose(const struct stepaf_topo_nics_query *query, struct stepaf_topo_nics *nics_p)
{
    const char *top = getenv("top_srcdir");
    struct stepaf_topo_nics_query there = *query;
    char path[4096];

    if (!verbs_device.topology) { /* as where nothing is known of them */
        *nics_p = (struct stepaf_topo_nics){.n = 1, .how = ""};
        snprintf(nics_p->name[0], sizeof(nics_p->name[0]), "%s", query->names[0]);
        return;
    }
    snprintf(path, sizeof(path), "%s/test/unit/topo/%s", top ? top : ".", verbs_device.topology);
    there.xml = path;
    there.core = verbs_device.core;
    stepaf_topo_nics_choose(&there, nics_p);
}

static void *made(void *object)
{
    verbs_device.n_open += object != NULL;
    return object;
}

static void gone(void *object)
{
    verbs_device.n_open--;
    free(object);
}

static struct ibv_context *open_device(struct ibv_device *device)
{
    struct ibv_context *context;

    if (verbs_device.no_access) {
        errno = EACCES;
        return NULL;
    }
    context = made(calloc(1, sizeof(*context)));
    if (context) {
        context->device = device;
        context->num_comp_vectors = verbs_device.n_vectors;
    }
    return context;
}

static void close_device(struct ibv_context *context)
{
    gone(context);
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr_p)
{
    (void)context;
    *attr_p = (struct ibv_device_attr){
        .phys_port_cnt = 1, .max_qp_wr = REQUESTS, .max_cqe = verbs_device.max_cqe};
    return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr_p)
{
    long index = context->device - devices;

    (void)port;
    *attr_p = (struct ibv_port_attr){
        .state = verbs_device.no_port || verbs_device.down >> index & 1 ? IBV_PORT_DOWN
                                                                        : IBV_PORT_ACTIVE,
        .active_mtu = verbs_device.mtu,
        .lid = verbs_device.lid,
        .pkey_tbl_len = (uint16_t)(verbs_device.n_pkeys ? verbs_device.n_pkeys : 1),
        .link_layer =
            verbs_device.is_infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
        .flags = verbs_device.port_flags,
        .gid_tbl_len = verbs_device.n_gids,
        .max_msg_sz = verbs_device.max_msg,
    };
    return 0;
}

static int query_gid(struct ibv_context *context, uint8_t port, uint32_t index,
                     struct ibv_gid_entry *entry_p)
{
    static const uint8_t ipv4[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1};

    (void)context, (void)port;
    *entry_p = (struct ibv_gid_entry){.gid_type = IBV_GID_TYPE_ROCE_V2};
    if (verbs_device.gids)
        *entry_p = verbs_device.gids[index];
    else if ((int)index == verbs_device.n_gids - 1)
        memcpy(entry_p->gid.raw, ipv4, sizeof(ipv4));
    else
        entry_p->gid.raw[0] = 0xfe;
    return 0;
}

static int query_pkey(struct ibv_context *context, uint8_t port, int index, uint16_t *pkey_p)
{
    (void)context, (void)port;
    *pkey_p = verbs_device.n_pkeys ? verbs_device.pkeys[index] : 0xffff;
    return 0;
}

static int try_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct ibv_gid_entry entry;
    unsigned index = attr->grh.sgid_index;

    (void)query_gid(pd->context, attr->port_num, index, &entry);
    if (!attr->is_global || memcmp(&entry.gid, &attr->grh.dgid, sizeof(entry.gid)) != 0)
        return EINVAL;
    return index < 64 && verbs_device.refuse_gids >> index & 1 ? verbs_device.refuse_gids_by : 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd;

    if (verbs_device.refuse_device >> (context->device - devices) & 1) {
        errno = EPERM;
        return NULL;
    }
    pd = made(calloc(1, sizeof(*pd)));

    if (pd)
        pd->context = context;
    return pd;
}

static void dealloc_pd(struct ibv_pd *pd)
{
    gone(pd);
}

/* Register what is within the limits that are set; NULL, with errno. */
static struct ibv_mr *make_mr(struct ibv_pd *pd, uint64_t at, size_t bytes, int access)
{
    uint32_t key = 1;

    if (verbs_device.refuse_mr && !--verbs_device.refuse_mr) {
        errno = ENOMEM;
        return NULL;
    }
    if (access & verbs_device.refuse_access) {
        errno = verbs_device.refuse_access_by;
        return NULL;
    }
    while (verbs_memories[key])
        key++;
    verbs_memories[key] = made(calloc(1, sizeof(struct ibv_mr)));
    if (!verbs_memories[key])
        return NULL;
    *verbs_memories[key] = (struct ibv_mr){.pd = pd,
                                           .addr = (void *)at, /* NOLINT */
                                           .length = bytes,
                                           .lkey = key,
                                           .rkey = key};
    verbs_device.n_registered++;
    verbs_device.last_access = access;
    verbs_device.last_mr = *verbs_memories[key];
    return verbs_memories[key];
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *base, size_t bytes, int access)
{
    uintptr_t from = (uintptr_t)verbs_device.gpu, at = (uintptr_t)base;

    if (from && at < from + verbs_device.gpu_bytes && at + bytes > from && !verbs_device.peermem) {
        errno = EFAULT;
        return NULL;
    }
    return make_mr(pd, at, bytes, access);
}

/* As the kernel does: the file has to be one, and both places be alike within their pages. */
static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
                                    int fd, int access)
{
    verbs_device.last_fd = fd;
    if (verbs_device.refuse_dmabuf) {
        errno = verbs_device.refuse_dmabuf;
        return NULL;
    }
    if (fcntl(fd, F_GETFD) < 0)
        return NULL;
    if ((offset ^ iova) & 4095) {
        errno = EINVAL;
        return NULL;
    }
    return make_mr(pd, iova, bytes, access);
}

static void dereg_mr(struct ibv_mr *mr)
{
    verbs_memories[mr->lkey] = NULL;
    gone(mr);
}

static struct ibv_comp_channel *create_channel(struct ibv_context *context)
{
    struct ibv_comp_channel *channel;

    if (verbs_device.refuse_channel) {
        errno = verbs_device.refuse_channel;
        return NULL;
    }
    channel = made(calloc(1, sizeof(*channel)));
    if (!channel)
        return NULL;
    channel->context = context;
    channel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return channel;
}

static void destroy_channel(struct ibv_comp_channel *channel)
{
    close(channel->fd);
    gone(channel);
}

static int arm_cq(struct ibv_cq *cq)
{
    eventfd_t told;

    (void)eventfd_read(cq->channel->fd, &told);
    ((struct queue *)cq)->armed = true;
    return verbs_device.refuse_arm;
}

static struct ibv_cq *create_cq(struct ibv_context *context, int n_entries,
                                struct ibv_comp_channel *channel, int vector)
{
    if (verbs_device.refuse_cq && !--verbs_device.refuse_cq) {
        errno = ENOMEM;
        return NULL;
    }
    struct queue *queue = calloc(1, sizeof(*queue) + (size_t)n_entries * sizeof(queue->wc[0]));
    if (!made(queue))
        return NULL;
    queue->cq.context = context;
    queue->cq.channel = channel;
    queue->size = (unsigned)n_entries;
    verbs_device.last_vector = vector;
    return &queue->cq;
}

static void destroy_cq(struct ibv_cq *cq)
{
    gone(cq);
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    uint32_t number = 1;

    errno = attr->cap.max_inline_data > verbs_device.max_inline ? EINVAL : 0;
    if (!errno && verbs_device.refuse_qp && !--verbs_device.refuse_qp)
        errno = ENOMEM;
    if (errno)
        return NULL;
    while (verbs_pairs[number])
        number++;
    struct pair *pair = calloc(1, sizeof(*pair));
    if (!made(pair))
        return NULL;
    verbs_pairs[number] = pair;
    pair->qp = (struct ibv_qp){.pd = pd, .qp_num = number, .context = pd->context};
    pair->attr = *attr;
    return &pair->qp;
}

static void destroy_qp(struct ibv_qp *qp)
{
    struct pair *pair = (struct pair *)qp;

    verbs_pairs[qp->qp_num] = NULL;
    gone(pair);
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct pair *pair = (struct pair *)qp;

    (void)mask;
    if (attr->qp_state == IBV_QPS_RTR && verbs_device.refuse_rtr)
        return verbs_device.refuse_rtr;
    if (attr->qp_state == IBV_QPS_ERR && verbs_device.refuse_error)
        return verbs_device.refuse_error;
    if (attr->qp_state == IBV_QPS_INIT)
        verbs_device.at_init = *attr;
    if (attr->qp_state == IBV_QPS_RTS)
        verbs_device.at_rts = *attr;
    if (attr->qp_state == IBV_QPS_RTR) {
        verbs_device.at_rtr = *attr;
        pair->far = attr->dest_qp_num;
        verbs_device.n_global += attr->ah_attr.is_global;
    }
    if (attr->qp_state == IBV_QPS_ERR)
        verbs_queue_flush(pair);
    pair->state = attr->qp_state;
    return 0;
}

static bool take_event(struct ibv_context *context, struct ibv_async_event *event_p)
{
    (void)context;
    *event_p = event;
    bool had = has_event;
    has_event = false;
    return had;
}

static const char *status_text(enum ibv_wc_status status)
{
    return status == IBV_WC_REM_ACCESS_ERR ? "remote access error" : "some error";
}

static const char *event_text(enum ibv_event_type type)
{
    return type == IBV_EVENT_DEVICE_FATAL ? "device fatal" : "some event";
}

static bool is_mlx5(struct ibv_device *device)
{
    (void)device;
    return verbs_device.is_mlx5;
}

static unsigned lag_ports(struct ibv_context *context)
{
    (void)context;
    return verbs_device.lag_ports;
}

static int lag_set_port(struct ibv_qp *qp, uint8_t port)
{
    const struct pair *pair = (const struct pair *)qp;

    if (pair->state != IBV_QPS_RTS || port < 1 || port > 2)
        return EINVAL;
    verbs_device.n_on_port[port] += !verbs_device.refuse_lag;
    return verbs_device.refuse_lag;
}

static const struct stepaf_verbs_lag_ops lag_ops = {
    .is_mlx5 = is_mlx5, .ports = lag_ports, .set_port = lag_set_port};
static const struct stepaf_verbs_cm_ops no_cm_ops;
static const struct stepaf_verbs_lag_ops no_lag_ops;

struct stepaf_verbs_provider verbs_device_provider = {
    .cm = &verbs_cm_ops,
    .lag = &lag_ops,
    .device_list = device_list,
    .device_list_free = device_list_free,
    .device_name = device_name,
    .core = core,
    .fork_init = fork_init,
    .choose = choose,
    .open = open_device,
    .close = close_device,
    .query_device = query_device,
    .query_port = query_port,
    .query_gid = query_gid,
    .query_pkey = query_pkey,
    .try_ah = try_ah,
    .alloc_pd = alloc_pd,
    .dealloc_pd = dealloc_pd,
    .reg_mr = reg_mr,
    .reg_dmabuf_mr = reg_dmabuf_mr,
    .dereg_mr = dereg_mr,
    .create_channel = create_channel,
    .destroy_channel = destroy_channel,
    .create_cq = create_cq,
    .destroy_cq = destroy_cq,
    .arm_cq = arm_cq,
    .create_qp = create_qp,
    .destroy_qp = destroy_qp,
    .modify_qp = modify_qp,
    .post_send = verbs_queue_send,
    .post_recv = verbs_queue_receive,
    .poll_cq = verbs_queue_poll,
    .take_event = take_event,
    .status_text = status_text,
    .event_text = event_text,
};

void verbs_device_reset(void)
{
    verbs_device = (struct verbs_device){.n_devices = 2,
                                         .n_gids = 2,
                                         .mtu = IBV_MTU_1024,
                                         .lid = 3,
                                         .max_inline = 256,
                                         .max_msg = 1 << 20,
                                         .max_cqe = ENTRIES,
                                         .n_open = verbs_device.n_open};
    has_event = false;
    memset(devices, 0, sizeof(devices));
    verbs_cm_reset();
    verbs_device_take_place();
}

void verbs_device_take_place(void)
{
    verbs_device_provider.cm = verbs_device.no_cm ? &no_cm_ops : &verbs_cm_ops;
    verbs_device_provider.lag = verbs_device.no_mlx5 ? &no_lag_ops : &lag_ops;
    stepaf_verbs_provider = &verbs_device_provider;
}

void verbs_device_event(enum ibv_event_type type, uint32_t qpn)
{
    event = (struct ibv_async_event){.event_type = type};
    if (qpn)
        event.element.qp = &verbs_pairs[qpn]->qp;
    if (type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE ||
        type == IBV_EVENT_LID_CHANGE || type == IBV_EVENT_GID_CHANGE)
        event.element.port_num = 1;
    has_event = true;
}

void verbs_device_revoke(uint32_t key)
{
    verbs_memories[key]->length = 0;
}
