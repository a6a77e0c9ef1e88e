/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs: created at open, one for each path to each peer, since their numbers must be in the
 * single exchange; made ready when the peer's are known. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "transport/verbs/verbs.h"

enum {
    MIN_RNR_TIMER = 1, /* 10 us */
    ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
};

/* The maximum inline size of a work request is found by trying, once for each rail. */
static const uint16_t inline_tries[] = {256, 128, 96, 64, 32, 0};

static struct ibv_qp *create_one(struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail,
                                 bool first)
{
    for (size_t i = 0; i < sizeof(inline_tries) / sizeof(inline_tries[0]); i++) {
        struct ibv_qp_init_attr attr = {
            .send_cq = rail->cq,
            .recv_cq = rail->cq,
            .cap = {.max_send_wr = verbs->qp.depth,
                    .max_recv_wr = verbs->qp.receives,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = first ? inline_tries[i] : rail->max.inline_bytes},
            .qp_type = IBV_QPT_RC,
        };
        struct ibv_qp *qp = verbs->provider->create_qp(rail->pd, &attr);
        if (qp && first)
            rail->max.inline_bytes = attr.cap.max_inline_data;
        if (qp || !first || (errno != EINVAL && errno != ENOMEM))
            return qp;
    }
    return NULL;
}

static stepaf_status_t refuse_qp(const struct stepaf_verbs *verbs,
                                 const struct stepaf_verbs_rail *rail, unsigned made)
{
    int error = errno;

    return stepaf_error_set(STEPAF_ERR_NO_TRANSPORT, STEPAF_PHASE_COMMIT,
                            "verbs: %s: queue pair %u of %u: %s%s", rail->name, made + 1,
                            verbs->n_peers * verbs->n_paths, strerror(error),
                            error == EOPNOTSUPP ? ": the device has no reliable connections"
                            : error == ENOMEM || error == EAGAIN
                                ? ": lower STEPAF_VERBS_QPS or STEPAF_VERBS_SEND_DEPTH, or raise "
                                  "the limit of locked memory (ulimit -l)"
                                : "");
}

stepaf_status_t stepaf_verbs_qps_create(struct stepaf_verbs *verbs)
{
    unsigned n = verbs->n_peers * verbs->n_paths;

    verbs->qps = calloc(n ? n : 1, sizeof(verbs->qps[0]));
    if (!verbs->qps)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (unsigned i = 0; i < n; i++) {
        unsigned path = i % verbs->n_paths;
        struct stepaf_verbs_rail *rail = &verbs->rails[path / verbs->n_qps];
        bool first = i == path && path % verbs->n_qps == 0;
        verbs->qps[i] = create_one(verbs, rail, first);
        if (!verbs->qps[i])
            return refuse_qp(verbs, rail, i);
    }
    return STEPAF_OK;
}

bool stepaf_verbs_qps_renew(struct stepaf_verbs *verbs, uint32_t peer)
{
    for (unsigned i = 0; i < verbs->n_paths; i++) {
        struct ibv_qp *qp = create_one(verbs, &verbs->rails[i / verbs->n_qps], false);
        verbs->qps[peer * verbs->n_paths + i] = qp;
        if (!qp) {
            int error = errno;
            stepaf_verbs_qps_destroy(verbs, peer);
            errno = error;
            return false;
        }
    }
    return true;
}

bool stepaf_verbs_qps_are_there(const struct stepaf_verbs *verbs, uint32_t peer)
{
    for (unsigned i = 0; i < verbs->n_paths; i++)
        if (!verbs->qps[peer * verbs->n_paths + i])
            return false;
    return true;
}

void stepaf_verbs_qps_destroy(struct stepaf_verbs *verbs, uint32_t peer)
{
    for (unsigned i = 0; verbs->qps && i < verbs->n_paths; i++) {
        struct ibv_qp **qp = &verbs->qps[peer * verbs->n_paths + i];
        if (*qp)
            verbs->provider->destroy_qp(*qp);
        *qp = NULL;
    }
}

int stepaf_verbs_qp_prepare(struct stepaf_verbs *verbs, const struct stepaf_verbs_path *path)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .pkey_index = path->rail->port.pkey_index,
        .port_num = path->rail->port.number,
        .qp_access_flags = ACCESS,
    };
    return verbs->provider->modify_qp(
        path->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_receive(struct stepaf_verbs *verbs, const struct stepaf_verbs_path *path,
                      const struct stepaf_verbs_far *far)
{
    const struct stepaf_verbs_rail *rail = path->rail;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = far->mtu < rail->port.mtu ? far->mtu : rail->port.mtu,
        .dest_qp_num = far->qpn,
        .rq_psn = far->psn,
        .min_rnr_timer = MIN_RNR_TIMER,
        .ah_attr = {.dlid = far->lid,
                    .sl = (uint8_t)verbs->base.up->env->verbs_service_level,
                    .port_num = rail->port.number},
    };

    if (rail->global || far->global) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh = (struct ibv_global_route){
            .dgid = far->gid,
            .sgid_index = (uint8_t)rail->port.gid_index,
            .hop_limit = 64,
            .traffic_class = (uint8_t)verbs->base.up->env->verbs_traffic_class,
        };
    }
    return verbs->provider->modify_qp(path->qp, &attr,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                          IBV_QP_MIN_RNR_TIMER);
}

static int to_send(struct stepaf_verbs *verbs, const struct stepaf_verbs_path *path)
{
    const struct stepaf_env *env = verbs->base.up->env;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .timeout = verbs->qp.ack_timeout,
        .retry_cnt = (uint8_t)env->verbs_retry,
        .rnr_retry = STEPAF_VERBS_RNR_RETRY,
        .sq_psn = (verbs->qp.psn + path->qp->qp_num) & 0xffffff,
    };
    return verbs->provider->modify_qp(path->qp, &attr,
                                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                          IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                          IBV_QP_MAX_QP_RD_ATOMIC);
}

int stepaf_verbs_qp_connect(struct stepaf_verbs *verbs, struct stepaf_verbs_path *path,
                            const struct stepaf_verbs_far *far, const char **step_p)
{
    int error;

    *step_p = "finding the path to the peer";
    error = to_receive(verbs, path, far);
    if (!error) {
        *step_p = "starting";
        error = to_send(verbs, path);
    }
    return error;
}

int stepaf_verbs_qp_follow(struct stepaf_verbs *verbs, const struct stepaf_verbs_path *path,
                           struct rdma_cm_id *id, enum ibv_qp_state state)
{
    const struct stepaf_env *env = verbs->base.up->env;
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask = 0;
    int error = verbs->provider->cm->init_attr(id, &attr, &mask);

    if (error)
        return error;
    if (mask & IBV_QP_ACCESS_FLAGS)
        attr.qp_access_flags |= ACCESS;
    if (mask & IBV_QP_AV && env->verbs_service_level)
        attr.ah_attr.sl = (uint8_t)env->verbs_service_level;
    if (mask & IBV_QP_PATH_MTU && attr.path_mtu > (enum ibv_mtu)path->rail->port.mtu)
        attr.path_mtu = (enum ibv_mtu)path->rail->port.mtu;
    if (mask & IBV_QP_MIN_RNR_TIMER)
        attr.min_rnr_timer = MIN_RNR_TIMER;
    if (mask & IBV_QP_TIMEOUT)
        attr.timeout = verbs->qp.ack_timeout;
    if (mask & IBV_QP_RETRY_CNT)
        attr.retry_cnt = (uint8_t)env->verbs_retry;
    if (mask & IBV_QP_RNR_RETRY)
        attr.rnr_retry = STEPAF_VERBS_RNR_RETRY;
    return verbs->provider->modify_qp(path->qp, &attr, mask);
}
