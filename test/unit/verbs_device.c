/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 4, PAIRS = 256, KEYS = 512, REQUESTS = 1024, ENTRIES = 1 << 16 };

struct request {
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    uint8_t data[256]; /* of an inline one */
};

struct pair {
    struct ibv_qp qp;
    struct ibv_qp_init_attr attr;
    enum ibv_qp_state state;
    uint32_t far;
    uint64_t receives[REQUESTS]; /* wr_id */
    struct ibv_sge places[REQUESTS];
    unsigned first_receive, n_receives;
    struct request *requests; /* posted, not done: a ring */
    unsigned first, n;
    unsigned used; /* of the queue's depth: freed by completions that are asked for */
};

struct queue {
    struct ibv_cq cq;
    struct ibv_wc *wc;
    unsigned first, n, size;
};

struct verbs_device verbs_device;
static struct ibv_device devices[DEVICES];
static struct pair *pairs[PAIRS];
static struct ibv_mr *memories[KEYS];
static struct ibv_async_event event;
static bool has_event;

static struct ibv_device **device_list(int *n_p)
{
    struct ibv_device **list = calloc(DEVICES + 1, sizeof(*list));

    for (int i = 0; i < verbs_device.n_devices; i++) {
        snprintf(devices[i].name, sizeof(devices[i].name), "fake%d", i);
        devices[i].transport_type = verbs_device.is_iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
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

static int device_numa(struct ibv_device *device)
{
    (void)device;
    return -1;
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
    context->device = device;
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
    (void)context, (void)port;
    *attr_p = (struct ibv_port_attr){
        .state = verbs_device.no_port ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
        .active_mtu = IBV_MTU_1024,
        .link_layer = IBV_LINK_LAYER_ETHERNET,
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
    if ((int)index == verbs_device.n_gids - 1)
        memcpy(entry_p->gid.raw, ipv4, sizeof(ipv4));
    else
        entry_p->gid.raw[0] = 0xfe;
    return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = made(calloc(1, sizeof(*pd)));

    pd->context = context;
    return pd;
}

static void dealloc_pd(struct ibv_pd *pd)
{
    gone(pd);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *base, size_t bytes, int access)
{
    uint32_t key = 1;

    (void)access;
    if (verbs_device.refuse_mr && !--verbs_device.refuse_mr) {
        errno = ENOMEM;
        return NULL;
    }
    while (memories[key])
        key++;
    memories[key] = made(calloc(1, sizeof(struct ibv_mr)));
    *memories[key] =
        (struct ibv_mr){.pd = pd, .addr = base, .length = bytes, .lkey = key, .rkey = key};
    return memories[key];
}

static void dereg_mr(struct ibv_mr *mr)
{
    memories[mr->lkey] = NULL;
    gone(mr);
}

static struct ibv_cq *create_cq(struct ibv_context *context, int n_entries)
{
    struct queue *queue = made(calloc(1, sizeof(*queue)));

    queue->cq.context = context;
    queue->size = (unsigned)n_entries;
    queue->wc = calloc(queue->size, sizeof(queue->wc[0]));
    return &queue->cq;
}

static void destroy_cq(struct ibv_cq *cq)
{
    free(((struct queue *)cq)->wc);
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
    while (pairs[number])
        number++;
    struct pair *pair = pairs[number] = made(calloc(1, sizeof(*pair)));
    pair->qp = (struct ibv_qp){.pd = pd, .qp_num = number, .context = pd->context};
    pair->attr = *attr;
    pair->requests = calloc(REQUESTS, sizeof(pair->requests[0]));
    return &pair->qp;
}

static void destroy_qp(struct ibv_qp *qp)
{
    struct pair *pair = (struct pair *)qp;

    pairs[qp->qp_num] = NULL;
    free(pair->requests);
    gone(pair);
}

static void complete(struct ibv_cq *cq, const struct ibv_wc *wc)
{
    struct queue *queue = (struct queue *)cq;

    if (queue->n == queue->size) {
        verbs_device.n_overflow++;
        return;
    }
    queue->wc[(queue->first + queue->n++) % queue->size] = *wc;
}

/* A device in error: everything posted ends by being flushed. */
static void flush(struct pair *pair)
{
    pair->state = IBV_QPS_ERR;
    for (; pair->n; pair->n--, pair->first = (pair->first + 1) % REQUESTS)
        complete(pair->attr.send_cq, &(struct ibv_wc){.wr_id = pair->requests[pair->first].wr.wr_id,
                                                      .status = IBV_WC_WR_FLUSH_ERR});
    for (; pair->n_receives;
         pair->n_receives--, pair->first_receive = (pair->first_receive + 1) % REQUESTS)
        complete(pair->attr.recv_cq, &(struct ibv_wc){.wr_id = pair->receives[pair->first_receive],
                                                      .status = IBV_WC_WR_FLUSH_ERR});
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct pair *pair = (struct pair *)qp;

    (void)mask;
    if (attr->qp_state == IBV_QPS_RTR && verbs_device.refuse_rtr)
        return verbs_device.refuse_rtr;
    if (attr->qp_state == IBV_QPS_RTR)
        pair->far = attr->dest_qp_num;
    if (attr->qp_state == IBV_QPS_ERR)
        flush(pair);
    pair->state = attr->qp_state;
    return 0;
}

/* The place of a range under a key; NULL: not allowed. */
static uint8_t *place(uint32_t key, uint64_t address, size_t bytes)
{
    const struct ibv_mr *mr = key < KEYS ? memories[key] : NULL;
    uint64_t base = mr ? (uintptr_t)mr->addr : 0;

    if (!mr || address < base || bytes > mr->length || address - base > mr->length - bytes)
        return NULL;
    return (uint8_t *)(uintptr_t)address;
}

/* Take a receive for a notification; copy what a send brings. */
static enum ibv_wc_status notify(struct pair *far, const struct ibv_send_wr *wr, const void *data,
                                 uint32_t bytes)
{
    struct ibv_wc wc = {.byte_len = bytes, .qp_num = far->qp.qp_num};

    if (!far->n_receives) {
        verbs_device.n_unready++;
        return IBV_WC_RNR_RETRY_EXC_ERR;
    }
    struct ibv_sge *sge = &far->places[far->first_receive];
    wc.wr_id = far->receives[far->first_receive];
    far->first_receive = (far->first_receive + 1) % REQUESTS;
    far->n_receives--;
    if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.imm_data = wr->imm_data;
    } else {
        wc.opcode = IBV_WC_RECV;
        if (bytes > sge->length)
            return IBV_WC_REM_INV_REQ_ERR;
        if (bytes)
            memcpy((void *)(uintptr_t)sge->addr, data, bytes);
    }
    complete(far->attr.recv_cq, &wc);
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status perform(const struct pair *pair, const struct request *request)
{
    const struct ibv_send_wr *wr = &request->wr;
    uint32_t bytes = wr->num_sge ? request->sge.length : 0;
    struct pair *far = pair->far < PAIRS ? pairs[pair->far] : NULL;
    const void *data = request->data;

    if (verbs_device.fail_after && !--verbs_device.fail_after)
        return verbs_device.fail_status;
    if (!far || far->state == IBV_QPS_ERR || far->state < IBV_QPS_RTR)
        return IBV_WC_RETRY_EXC_ERR;
    if (bytes && !(wr->send_flags & IBV_SEND_INLINE)) {
        data = place(request->sge.lkey, request->sge.addr, bytes);
        if (!data)
            return IBV_WC_LOC_PROT_ERR;
    }
    if (wr->opcode != IBV_WR_SEND && bytes) {
        uint8_t *to = place(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, bytes);
        if (!to)
            return IBV_WC_REM_ACCESS_ERR;
        memcpy(to, data, bytes);
    }
    return wr->opcode == IBV_WR_RDMA_WRITE ? IBV_WC_SUCCESS : notify(far, wr, data, bytes);
}

/* Do what is posted, in order. */
static void run(struct pair *pair)
{
    while (pair->n && pair->state == IBV_QPS_RTS) {
        struct request *request = &pair->requests[pair->first];
        struct ibv_wc wc = {.wr_id = request->wr.wr_id, .qp_num = pair->qp.qp_num};
        wc.status = perform(pair, request);
        pair->first = (pair->first + 1) % REQUESTS;
        pair->n--;
        pair->used++;
        if (wc.status || request->wr.send_flags & IBV_SEND_SIGNALED) {
            complete(pair->attr.send_cq, &wc);
            pair->used = 0;
        }
        if (wc.status)
            flush(pair);
    }
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_p)
{
    struct pair *pair = (struct pair *)qp;
    uint32_t number = qp->qp_num;

    *bad_p = wr;
    verbs_device.n_doorbells++;
    if (verbs_device.refuse_post)
        return verbs_device.refuse_post;
    for (; wr; wr = wr->next) {
        struct request *request = &pair->requests[(pair->first + pair->n++) % REQUESTS];
        *bad_p = wr;
        if (verbs_device.is_iwarp && wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
            return EINVAL;
        verbs_device.n_requests++;
        verbs_device.n_imms += wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
        verbs_device.n_sends += wr->opcode == IBV_WR_SEND;
        verbs_device.n_signaled += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
        verbs_device.n_inline += (wr->send_flags & IBV_SEND_INLINE) != 0;
        if (pair->n + pair->used > pair->attr.cap.max_send_wr)
            verbs_device.n_overflow++;
        request->wr = *wr;
        if (!wr->num_sge)
            continue;
        request->sge = wr->sg_list[0];
        if (wr->send_flags & IBV_SEND_INLINE)
            memcpy(request->data, (void *)(uintptr_t)request->sge.addr, request->sge.length);
    }
    if (!verbs_device.holds && verbs_device.holds_qpn != number)
        run(pair);
    return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_p)
{
    struct pair *pair = (struct pair *)qp;

    for (; wr; wr = wr->next) {
        unsigned at = (pair->first_receive + pair->n_receives) % REQUESTS;
        *bad_p = wr;
        if (pair->n_receives == pair->attr.cap.max_recv_wr)
            return ENOMEM;
        pair->receives[at] = wr->wr_id;
        pair->places[at] = wr->num_sge ? wr->sg_list[0] : (struct ibv_sge){0};
        pair->n_receives++;
    }
    return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc_p)
{
    struct queue *queue = (struct queue *)cq;
    int got = 0;

    for (; got < n && queue->n; got++, queue->n--, queue->first = (queue->first + 1) % queue->size)
        wc_p[got] = queue->wc[queue->first];
    return got;
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

const struct stepaf_verbs_provider verbs_device_provider = {
    .device_list = device_list,
    .device_list_free = device_list_free,
    .device_name = device_name,
    .device_numa = device_numa,
    .open = open_device,
    .close = close_device,
    .query_device = query_device,
    .query_port = query_port,
    .query_gid = query_gid,
    .alloc_pd = alloc_pd,
    .dealloc_pd = dealloc_pd,
    .reg_mr = reg_mr,
    .dereg_mr = dereg_mr,
    .create_cq = create_cq,
    .destroy_cq = destroy_cq,
    .create_qp = create_qp,
    .destroy_qp = destroy_qp,
    .modify_qp = modify_qp,
    .post_send = post_send,
    .post_recv = post_recv,
    .poll_cq = poll_cq,
    .take_event = take_event,
    .status_text = status_text,
    .event_text = event_text,
};

void verbs_device_reset(void)
{
    verbs_device = (struct verbs_device){.n_devices = 2,
                                         .n_gids = 2,
                                         .max_inline = 256,
                                         .max_msg = 1 << 20,
                                         .max_cqe = ENTRIES,
                                         .n_open = verbs_device.n_open};
    has_event = false;
    stepaf_verbs_provider = &verbs_device_provider;
}

void verbs_device_go(void)
{
    verbs_device.holds = false;
    verbs_device.holds_qpn = 0;
    for (unsigned i = 0; i < PAIRS; i++)
        if (pairs[i])
            run(pairs[i]);
}

void verbs_device_notify(uint32_t qpn, uint32_t imm)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .imm_data = __builtin_bswap32(imm)};
    (void)notify(pairs[qpn], &wr, NULL, 0);
}

void verbs_device_event(enum ibv_event_type type, uint32_t qpn)
{
    event = (struct ibv_async_event){.event_type = type};
    if (qpn)
        event.element.qp = &pairs[qpn]->qp;
    has_event = true;
}

void verbs_device_revoke(uint32_t key)
{
    memories[key]->length = 0;
}
