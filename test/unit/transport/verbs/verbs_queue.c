/* SPDX-License-Identifier: Apache-2.0 */
/* What made-up devices do with what is posted: at once, in order, and as strict as real ones. */
#include "verbs_queue.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

struct pair *verbs_pairs[PAIRS];
struct ibv_mr *verbs_memories[KEYS];

static void complete(struct ibv_cq *cq, const struct ibv_wc *wc)
{
    struct queue *queue = (struct queue *)cq;

    if (queue->n == queue->size) {
        verbs_device.n_overflow++;
        return;
    }
    queue->wc[(queue->first + queue->n++) % queue->size] = *wc;
    if (queue->armed)
        (void)eventfd_write(cq->channel->fd, 1);
    queue->armed = false;
}

/* A device in error: everything posted ends by being flushed. */
void verbs_queue_flush(struct pair *pair)
{
    pair->state = IBV_QPS_ERR;
    if (verbs_device.no_flush)
        pair->n = pair->n_receives = 0;
    for (; pair->n; pair->n--, pair->first = (pair->first + 1) % REQUESTS)
        complete(pair->attr.send_cq, &(struct ibv_wc){.wr_id = pair->requests[pair->first].wr.wr_id,
                                                      .status = IBV_WC_WR_FLUSH_ERR});
    for (; pair->n_receives;
         pair->n_receives--, pair->first_receive = (pair->first_receive + 1) % REQUESTS)
        complete(pair->attr.recv_cq, &(struct ibv_wc){.wr_id = pair->receives[pair->first_receive],
                                                      .status = IBV_WC_WR_FLUSH_ERR});
}

/* The place of a range under a key; NULL: not allowed. */
static uint8_t *place(uint32_t key, uint64_t address, size_t bytes)
{
    const struct ibv_mr *mr = key < KEYS ? verbs_memories[key] : NULL;
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

static int device_of(const struct pair *pair)
{
    return pair->qp.context->device->name[strlen("fake")] - '0';
}

/* Whether a request of this queue pair's is lost, now that the device has it; *late_p: it only
 * seems so to who has sent it. */
static bool is_lost(const struct pair *pair, bool *late_p)
{
    int device = device_of(pair);

    *late_p = false;
    if (verbs_device.dead & 1u << device)
        return true;
    if (device != verbs_device.dies || !verbs_device.dies_after || --verbs_device.dies_after)
        return false;
    verbs_device.dead |= 1u << device;
    *late_p = verbs_device.dies_late;
    return true;
}

static enum ibv_wc_status perform(const struct pair *pair, const struct request *request)
{
    const struct ibv_send_wr *wr = &request->wr;
    uint32_t bytes = wr->num_sge ? request->sge.length : 0;
    struct pair *far = pair->far < PAIRS ? verbs_pairs[pair->far] : NULL;
    const void *data = request->data;

    if (verbs_device.fail_after && !--verbs_device.fail_after)
        return verbs_device.fail_status;
    if (bytes > verbs_device.max_msg)
        return IBV_WC_LOC_LEN_ERR;
    if (!far || far->state == IBV_QPS_ERR || far->state < IBV_QPS_RTR)
        return IBV_WC_RETRY_EXC_ERR;
    if (wr->opcode == IBV_WR_RDMA_READ) {
        const void *from = place(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, bytes);
        void *to = place(request->sge.lkey, request->sge.addr, bytes);
        verbs_device.n_reads++;
        if (!from || !to)
            return IBV_WC_REM_ACCESS_ERR;
        memcpy(to, from, bytes);
        return IBV_WC_SUCCESS;
    }
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

/* Do what is posted, in order, but no more than @a most. */
static void run(struct pair *pair, unsigned most)
{
    if (verbs_device.silent && verbs_device.silent & 1u << device_of(pair))
        return;
    while (pair->n && pair->state == IBV_QPS_RTS && most--) {
        struct request *request = &pair->requests[pair->first];
        struct ibv_wc wc = {.wr_id = request->wr.wr_id, .qp_num = pair->qp.qp_num};
        bool late, lost = is_lost(pair, &late);
        wc.status = lost && !late ? IBV_WC_RETRY_EXC_ERR : perform(pair, request);
        if (late)
            wc.status = IBV_WC_RETRY_EXC_ERR;
        pair->first = (pair->first + 1) % REQUESTS;
        pair->n--;
        pair->used++;
        if (wc.status || request->wr.send_flags & IBV_SEND_SIGNALED) {
            complete(pair->attr.send_cq, &wc);
            pair->used = 0;
        }
        if (wc.status)
            verbs_queue_flush(pair);
    }
}

bool verbs_queue_is_iwarp(const struct ibv_qp *qp)
{
    return qp->context->device->transport_type == IBV_TRANSPORT_IWARP;
}

int verbs_queue_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_p)
{
    struct pair *pair = (struct pair *)qp;
    uint32_t number = qp->qp_num;

    *bad_p = wr;
    verbs_device.n_doorbells++;
    if (verbs_device.refuse_post &&
        (!verbs_device.refuse_qpn || verbs_device.refuse_qpn == qp->qp_num))
        return verbs_device.refuse_post;
    for (; wr; wr = wr->next) {
        struct request *request = &pair->requests[(pair->first + pair->n++) % REQUESTS];
        *bad_p = wr;
        if (verbs_queue_is_iwarp(qp) && wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
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
        run(pair, REQUESTS);
    return 0;
}

int verbs_queue_receive(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_p)
{
    struct pair *pair = (struct pair *)qp;

    for (; wr; wr = wr->next) {
        unsigned at = (pair->first_receive + pair->n_receives) % REQUESTS;
        *bad_p = wr;
        if (pair->n_receives == pair->attr.cap.max_recv_wr)
            return ENOMEM;
        if (verbs_queue_is_iwarp(qp) && !wr->num_sge)
            return EINVAL;
        pair->receives[at] = wr->wr_id;
        pair->places[at] = wr->num_sge ? wr->sg_list[0] : (struct ibv_sge){0};
        pair->n_receives++;
    }
    return 0;
}

int verbs_queue_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc_p)
{
    struct queue *queue = (struct queue *)cq;
    int got = 0;

    for (; got < n && queue->n; got++, queue->n--, queue->first = (queue->first + 1) % queue->size)
        wc_p[got] = queue->wc[queue->first];
    return got;
}

void verbs_device_go(void)
{
    verbs_device.holds = false;
    verbs_device.holds_qpn = 0;
    for (unsigned i = 0; i < PAIRS; i++)
        if (verbs_pairs[i])
            run(verbs_pairs[i], REQUESTS);
}

bool verbs_device_go_one(unsigned pick)
{
    unsigned n = 0;

    for (unsigned i = 0; i < PAIRS; i++)
        n += verbs_pairs[i] && verbs_pairs[i]->n;
    if (!n)
        return false;
    pick %= n;
    for (unsigned i = 0; i < PAIRS; i++)
        if (verbs_pairs[i] && verbs_pairs[i]->n && !pick--) {
            run(verbs_pairs[i], 1);
            break;
        }
    return true;
}

void verbs_device_notify(uint32_t qpn, uint32_t imm)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .imm_data = __builtin_bswap32(imm)};
    (void)notify(verbs_pairs[qpn], &wr, NULL, 0);
}
