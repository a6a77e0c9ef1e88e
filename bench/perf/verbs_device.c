/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of RDMA: its device and its queue pairs, with what the library gives its own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "verbs_state.h"

enum {
    ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
    MIN_RNR_TIMER = 1,
    RNR_RETRY = 7,
    RETRY = 7,
    TIMEOUT = 18
};

/* Whether the port is active; *verbs then has its facts. */
static int take_port(struct perf_verbs *verbs, uint8_t port)
{
    verbs->port = port;
    return ibv_query_port(verbs->context, port, &verbs->port_attr) == 0 &&
           verbs->port_attr.state == IBV_PORT_ACTIVE;
}

/* Whether @a device is meant and is active. It is open then. */
static int take_device(struct perf_verbs *verbs, struct ibv_device *device, const char *name)
{
    size_t length = strcspn(name, ":,");
    const char *its = ibv_get_device_name(device);
    int port = name[length] == ':' ? atoi(name + length + 1) : 1;

    if (length > 0 && (strlen(its) != length || strncmp(its, name, length) != 0))
        return 0;
    verbs->context = ibv_open_device(device);
    if (verbs->context == NULL)
        return 0;
    if (take_port(verbs, (uint8_t)port))
        return 1;
    ibv_close_device(verbs->context);
    verbs->context = NULL;
    return 0;
}

/* How good an entry of the GID table is: RoCEv2 over IPv4 before all others. */
static int gid_rank(const struct ibv_gid_entry *entry)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    int is_ipv4 = memcmp(entry->gid.raw, mapped, sizeof(mapped)) == 0;

    return 1 + is_ipv4 + 2 * (entry->gid_type == IBV_GID_TYPE_ROCE_V2);
}

static int choose_gid(struct perf_verbs *verbs)
{
    const char *setting = getenv("STEPAF_VERBS_GID_INDEX");
    struct ibv_gid_entry entry;
    int best = 0;

    for (int i = 0; i < verbs->port_attr.gid_tbl_len; i++) {
        if (ibv_query_gid_ex(verbs->context, verbs->port, (uint32_t)i, &entry, 0) != 0 ||
            gid_rank(&entry) <= best)
            continue;
        if (setting != NULL && setting[0] != '\0' && atoi(setting) != i)
            continue;
        best = gid_rank(&entry);
        verbs->gid = entry.gid;
        verbs->gid_index = (uint8_t)i;
    }
    return best > 0 ? 0 : perf_fail("plain verbs: the device does not have this GID");
}

int perf_verbs_device_open(struct perf_verbs *verbs, const char *name)
{
    unsigned queues = (unsigned)verbs->n_conns * (verbs->depth + verbs->receives);
    struct ibv_device **list;
    int n = 0;

    list = ibv_get_device_list(&n);
    for (int i = 0; i < n && verbs->context == NULL; i++)
        take_device(verbs, list[i], name);
    if (list != NULL)
        ibv_free_device_list(list);
    if (verbs->context == NULL)
        return perf_fail("plain verbs: no active device%s%s", name[0] != '\0' ? " named " : "",
                         name);
    if (choose_gid(verbs) != 0)
        return -1;
    verbs->pd = ibv_alloc_pd(verbs->context);
    if (verbs->pd != NULL)
        verbs->cq = ibv_create_cq(verbs->context, (int)queues, NULL, NULL, 0);
    if (verbs->cq != NULL)
        verbs->mr = ibv_reg_mr(verbs->pd, verbs->buffers->base, verbs->buffers->bytes, ACCESS);
    return verbs->mr != NULL ? 0 : perf_fail("plain verbs: %s", strerror(errno));
}

void perf_verbs_device_close(struct perf_verbs *verbs)
{
    for (int i = 0; i < verbs->n_conns && verbs->conns != NULL; i++) {
        if (verbs->conns[i].qp != NULL)
            ibv_destroy_qp(verbs->conns[i].qp);
    }
    if (verbs->mr != NULL)
        ibv_dereg_mr(verbs->mr);
    if (verbs->cq != NULL)
        ibv_destroy_cq(verbs->cq);
    if (verbs->pd != NULL)
        ibv_dealloc_pd(verbs->pd);
    if (verbs->context != NULL)
        ibv_close_device(verbs->context);
}

/* With as much inline as the library would have. */
static struct ibv_qp *create(struct perf_verbs *verbs)
{
    static const uint32_t inline_tries[] = {256, 128, 96, 64, 32, 0};

    for (size_t i = 0; i < sizeof(inline_tries) / sizeof(inline_tries[0]); i++) {
        struct ibv_qp_init_attr attr = {.send_cq = verbs->cq,
                                        .recv_cq = verbs->cq,
                                        .cap = {.max_send_wr = verbs->depth,
                                                .max_recv_wr = verbs->receives,
                                                .max_send_sge = 1,
                                                .max_recv_sge = 1,
                                                .max_inline_data = inline_tries[i]},
                                        .qp_type = IBV_QPT_RC};
        struct ibv_qp *qp = ibv_create_qp(verbs->pd, &attr);

        if (qp != NULL)
            verbs->inline_bytes = attr.cap.max_inline_data;
        if (qp != NULL || (errno != EINVAL && errno != ENOMEM))
            return qp;
    }
    return NULL;
}

int perf_verbs_qp_make(struct perf_verbs *verbs, struct perf_verbs_conn *conn)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = verbs->port, .qp_access_flags = ACCESS};
    struct ibv_recv_wr *bad;
    int error;

    conn->qp = create(verbs);
    if (conn->qp == NULL)
        return perf_fail("plain verbs: no queue pair: %s", strerror(errno));
    error = ibv_modify_qp(conn->qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    for (int half = 0; half < 2 && error == 0; half++) {
        for (unsigned i = 0; i < verbs->receives / 2; i++)
            verbs->refill[i].wr_id = conn->index;
        error = ibv_post_recv(conn->qp, verbs->refill, &bad);
    }
    return error == 0 ? 0 : perf_fail("plain verbs: queue pair: %s", strerror(error));
}

void perf_verbs_qp_tell(const struct perf_verbs *verbs, const struct perf_verbs_conn *conn,
                        struct perf_verbs_end *end_p)
{
    *end_p = (struct perf_verbs_end){.gid = verbs->gid,
                                     .qpn = conn->qp->qp_num,
                                     .psn = conn->qp->qp_num & 0xffff,
                                     .rkey = verbs->mr->rkey,
                                     .lid = verbs->port_attr.lid,
                                     .mtu = (uint8_t)verbs->port_attr.active_mtu};
}

int perf_verbs_qp_connect(struct perf_verbs *verbs, struct perf_verbs_conn *conn,
                          const struct perf_verbs_end *far)
{
    enum ibv_mtu mtu = verbs->port_attr.active_mtu;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = far->mtu < mtu ? (enum ibv_mtu)far->mtu : mtu,
                               .dest_qp_num = far->qpn,
                               .rq_psn = far->psn,
                               .min_rnr_timer = MIN_RNR_TIMER,
                               .ah_attr = {.dlid = far->lid, .port_num = verbs->port}};
    int error;

    if (verbs->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh = (struct ibv_global_route){
            .dgid = far->gid, .sgid_index = verbs->gid_index, .hop_limit = 64};
    }
    error = ibv_modify_qp(conn->qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error == 0) {
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                    .timeout = TIMEOUT,
                                    .retry_cnt = RETRY,
                                    .rnr_retry = RNR_RETRY,
                                    .sq_psn = conn->qp->qp_num & 0xffff};
        error = ibv_modify_qp(conn->qp, &attr,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    return error == 0 ? 0 : perf_fail("plain verbs: connecting: %s", strerror(error));
}
