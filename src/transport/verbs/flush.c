/* SPDX-License-Identifier: Apache-2.0 */
/* Flush for GPUs with two ways to their memory: data that the device has written over one way may
 * still be in flight when the host receives the completion over the other. A read by the same
 * device, over a queue pair connected with itself, completes after everything that the device has
 * written (PCI Express Base Specification, transaction ordering: a read's completion passes no
 * posted write). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/time.h"
#include "transport/verbs/rail.h"

struct stepaf_verbs_flush {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr; /* of word */
    uint64_t word;
};

void stepaf_verbs_flush_end(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail)
{
    struct stepaf_verbs_flush *flush = rail->flush;

    if (!flush)
        return;
    if (flush->qp)
        verbs->provider->destroy_qp(flush->qp);
    if (flush->cq)
        verbs->provider->destroy_cq(flush->cq);
    if (flush->mr)
        verbs->provider->dereg_mr(flush->mr);
    free(flush);
    rail->flush = NULL;
}

/* Connect the queue pair with itself. Return 0 or errno. */
static int connect_to_itself(const struct stepaf_verbs *verbs, const struct stepaf_verbs_rail *rail,
                             struct ibv_qp *qp)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = rail->port.pkey_index,
                               .port_num = rail->port.number,
                               .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                              .path_mtu = (enum ibv_mtu)rail->port.mtu,
                              .dest_qp_num = qp->qp_num,
                              .max_dest_rd_atomic = 1,
                              .min_rnr_timer = 1,
                              .ah_attr = {.dlid = rail->port.lid, .port_num = rail->port.number}};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .timeout = verbs->qp.ack_timeout,
                              .retry_cnt = (uint8_t)verbs->base.up->env->verbs_retry,
                              .max_rd_atomic = 1};

    if (rail->global) {
        rtr.ah_attr.is_global = 1;
        rtr.ah_attr.grh = (struct ibv_global_route){
            .dgid = rail->port.gid, .sgid_index = (uint8_t)rail->port.gid_index, .hop_limit = 64};
    }
    int error = verbs->provider->modify_qp(
        qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (!error)
        error = verbs->provider->modify_qp(qp, &rtr,
                                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                               IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (!error)
        error = verbs->provider->modify_qp(qp, &rts,
                                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                               IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                               IBV_QP_MAX_QP_RD_ATOMIC);
    return error;
}

int stepaf_verbs_flush_make(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail)
{
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct stepaf_verbs_flush *flush;
    int error;

    if (rail->flush)
        return 0;
    if (rail->iwarp || rail->cm)
        return EOPNOTSUPP; /* librdmacm does not connect a queue pair with itself */
    flush = rail->flush = calloc(1, sizeof(*flush));
    if (!flush)
        return ENOMEM;
    errno = 0;
    flush->mr = verbs->provider->reg_mr(rail->pd, &flush->word, sizeof(flush->word),
                                        IBV_ACCESS_LOCAL_WRITE);
    flush->cq = flush->mr ? verbs->provider->create_cq(rail->context, 1, NULL, 0) : NULL;
    attr.send_cq = attr.recv_cq = flush->cq;
    flush->qp = flush->cq ? verbs->provider->create_qp(rail->pd, &attr) : NULL;
    error = flush->qp ? connect_to_itself(verbs, rail, flush->qp) : errno;
    if (error || !flush->qp) {
        stepaf_verbs_flush_end(verbs, rail);
        return error ? error : ENOMEM;
    }
    return 0;
}

/* Return any registered memory of the GPU; NULL if there is none. */
static const struct stepaf_verbs_memory *gpu_memory(const struct stepaf_verbs *verbs)
{
    for (const struct stepaf_list *at = verbs->memories.next; at != &verbs->memories;
         at = at->next) {
        const struct stepaf_verbs_memory *memory =
            stepaf_container_of(at, struct stepaf_verbs_memory, node);
        if (memory->on_gpu)
            return memory;
    }
    return NULL;
}

/* The queue pair does nothing after a failure, and may still report it: the next read has another. */
static stepaf_status_t fail_read(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail,
                                 const char *what)
{
    stepaf_verbs_flush_end(verbs, rail);
    return stepaf_error_set(STEPAF_ERR_TRANSPORT, STEPAF_PHASE_NONE,
                            "verbs: %s: the read that flushes what was written to the GPU: %s",
                            rail->name, what);
}

static stepaf_status_t read_back(const struct stepaf_verbs *verbs, struct stepaf_verbs_rail *rail,
                                 const void *at, uint32_t key)
{
    int made = stepaf_verbs_flush_make(verbs, rail);
    if (made)
        return fail_read(verbs, rail, strerror(made));
    const struct stepaf_verbs_flush *flush = rail->flush;
    int64_t deadline_ns = stepaf_deadline_ns(verbs->base.up->env->verbs_peer_timeout_us);
    struct ibv_sge place = {.addr = (uintptr_t)&flush->word, .length = 1, .lkey = flush->mr->lkey};
    struct ibv_send_wr *bad, read = {.sg_list = &place,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_RDMA_READ,
                                     .send_flags = IBV_SEND_SIGNALED,
                                     .wr.rdma = {.remote_addr = (uintptr_t)at, .rkey = key}};
    struct ibv_wc wc;
    int got, error = verbs->provider->post_send(flush->qp, &read, &bad);

    if (error)
        return fail_read(verbs, rail, strerror(error));
    while (!(got = verbs->provider->poll_cq(flush->cq, 1, &wc)))
        if (stepaf_monotonic_ns() > deadline_ns)
            return fail_read(verbs, rail, "it does not complete");
    return got == 1 && wc.status == IBV_WC_SUCCESS
               ? STEPAF_OK
               : fail_read(verbs, rail,
                           got < 0 ? "the completion queue has failed"
                                   : verbs->provider->status_text(wc.status));
}

stepaf_status_t stepaf_verbs_flush_gpu(struct stepaf_link *base)
{
    const struct stepaf_verbs_link *link = (const struct stepaf_verbs_link *)base;
    const struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    const struct stepaf_verbs_memory *memory = gpu_memory(verbs);
    stepaf_status_t status = STEPAF_OK;

    for (unsigned i = 0; memory && i < link->n_paths && !status; i += verbs->n_qps) {
        const struct stepaf_verbs_path *path = &link->paths[i];
        if (!path->closed) /* writes that a dead rail may still deliver are resent */
            status =
                read_back(verbs, path->rail, memory->mem->base, memory->mr[path->rail_index]->rkey);
    }
    return status;
}
