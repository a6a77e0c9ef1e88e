/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: a thread of each process that carries out its work requests. A *run* is a number of
 * writes and the request behind them that notifies; the bytes of its writes go in pieces and in any
 * order, and the notification is at the peer when the wire would have brought the last of them, not
 * before. */
#include "softnic.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { PIECES = 64, PIECE_BYTES = 1 << 18, RNR_NS = 2000000000 };

struct piece {
    struct softnic_send *send;
    uint32_t offset, bytes;
};

static struct softnic_send *send_at(const struct softnic_qp *qp, uint32_t n)
{
    return &qp->sends[n % SOFTNIC_SENDS];
}

static bool notifies(const struct softnic_send *send)
{
    return send->opcode != IBV_WR_RDMA_WRITE;
}

/* ---- copying ---- */

/* Cut the run into pieces; returns how many, and where it ends in *end_p. */
static unsigned cut(struct softnic_qp *qp, uint32_t posted, struct piece *pieces, uint32_t *end_p)
{
    uint32_t at = qp->copied;
    unsigned n = 0;

    for (; at != posted && n < PIECES; at++) {
        struct softnic_send *send = send_at(qp, at);
        uint32_t each = send->bytes / 4 > PIECE_BYTES ? send->bytes / 4 + 1 : PIECE_BYTES;
        if (!softnic.in_order && send->bytes > 64 && send->bytes <= PIECE_BYTES)
            each = send->bytes / 2 + 1;
        if (send->opcode != IBV_WR_SEND)
            for (uint32_t done = 0; done < send->bytes && n < PIECES + 4; done += each)
                pieces[n++] = (struct piece){send, done,
                                             send->bytes - done < each ? send->bytes - done : each};
        if (notifies(send)) {
            at++;
            break;
        }
    }
    *end_p = at;
    return n;
}

static void shuffle(struct piece *pieces, unsigned n)
{
    for (unsigned i = n; i > 1; i--) {
        unsigned other = (unsigned)(softnic_random() % i);
        struct piece piece = pieces[i - 1];
        pieces[i - 1] = pieces[other];
        pieces[other] = piece;
    }
}

static bool is_dead(const struct softnic_qp *qp, const struct softnic_port *port)
{
    uint32_t bit = 1u << qp->device;

    if (softnic.dies_after && softnic.dies == qp->device &&
        softnic.n_requests[qp->device] >= softnic.dies_after)
        atomic_fetch_or(&softnic.port->dead, bit);
    return (atomic_load(&softnic.port->dead) & bit) || !port || (atomic_load(&port->dead) & bit);
}

/* Whether the peer is there, and may be written to. */
static enum ibv_wc_status check_run(const struct softnic_qp *qp, const struct softnic_port *port,
                                    const struct piece *pieces, unsigned n)
{
    enum ibv_wc_status status = IBV_WC_SUCCESS;

    if (is_dead(qp, port) || !softnic_is_alive(qp->peer_pid))
        return IBV_WC_RETRY_EXC_ERR;
    int state = atomic_load(&port->qps[qp->peer_qp].state);
    if (state != IBV_QPS_RTR && state != IBV_QPS_RTS)
        return IBV_WC_RETRY_EXC_ERR;
    for (unsigned i = 0; i < n && !status; i++) {
        const struct softnic_send *send = pieces[i].send;
        if (send->addr && softnic_check(softnic.port, send->lkey, send->addr, send->bytes))
            status = IBV_WC_LOC_PROT_ERR;
        else
            status = softnic_check(port, send->rkey, send->remote, send->bytes);
    }
    return status;
}

/* How long the wire takes for it. */
static void time_run(struct softnic_qp *qp, uint32_t end, uint64_t bytes, enum ibv_wc_status status)
{
    uint64_t *busy = &softnic.busy_ns[qp->device];
    uint64_t begun = send_at(qp, qp->copied)->posted_ns;

    if (*busy < begun)
        *busy = begun;
    *busy += (uint64_t)((double)bytes * softnic.ns_per_byte);
    for (; qp->copied != end; qp->copied++) {
        struct softnic_send *send = send_at(qp, qp->copied);
        send->deliver_ns = *busy + softnic.latency_ns;
        send->ack_ns = send->deliver_ns + softnic.latency_ns;
        send->run_bytes = bytes;
        send->status = status;
        softnic.n_requests[qp->device]++;
    }
}

/* Map the peer's GPU memory as soon as it is known: CUDA waits for streams then, and later these
 * may wait for what comes by it. */
static void map_ahead(struct softnic_qp *qp)
{
    const struct softnic_port *port = softnic_port_of(qp->peer_pid);
    uint32_t n = port ? atomic_load(&port->n_registered) : qp->n_mapped;

    if (n == qp->n_mapped)
        return;
    qp->n_mapped = n;
    for (unsigned i = 0; i < SOFTNIC_MRS; i++)
        if (atomic_load(&port->mrs[i].key) && port->mrs[i].on_gpu)
            (void)softnic_gpu_map(qp->peer_pid, &port->mrs[i]);
}

static bool copy_run(struct softnic_qp *qp)
{
    uint32_t posted = atomic_load_explicit(&qp->posted, memory_order_acquire), end;
    struct softnic_port *port = softnic_port_of(qp->peer_pid);
    struct piece pieces[PIECES + 8];
    uint64_t bytes = 0;

    if (qp->copied == posted)
        return false;
    unsigned n = cut(qp, posted, pieces, &end);
    if (!softnic.in_order)
        shuffle(pieces, n);
    enum ibv_wc_status status = check_run(qp, port, pieces, n);
    for (unsigned i = 0; i < n && !status; i++) {
        status = softnic_copy(qp->peer_pid, port, pieces[i].send, pieces[i].send->remote,
                              pieces[i].offset, pieces[i].bytes);
        bytes += pieces[i].bytes;
    }
    if (!softnic_gpu_sync() && !status)
        status = IBV_WC_LOC_PROT_ERR;
    time_run(qp, end, bytes, status);
    return true;
}

/* ---- at the peer ---- */

/* Put a notification into the peer's queue. False: it has no receive for it. */
static bool notify(const struct softnic_qp *qp, struct softnic_port *port,
                   struct softnic_send *send)
{
    struct softnic_shared_qp *its = &port->qps[qp->peer_qp];
    bool imm = send->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

    softnic_port_lock(port);
    bool there = its->n;
    if (there) {
        struct softnic_recv recv = its->recvs[its->first % SOFTNIC_RECVS];
        its->first++;
        its->n--;
        if (!imm && send->bytes)
            send->status = recv.addr && send->bytes <= recv.bytes
                               ? softnic_copy_to(qp->peer_pid, recv.addr, send)
                               : IBV_WC_REM_INV_REQ_ERR;
        struct ibv_wc wc = {.wr_id = recv.wr_id,
                            .opcode = imm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
                            .byte_len = send->bytes,
                            .wc_flags = imm ? IBV_WC_WITH_IMM : 0,
                            .imm_data = send->imm,
                            .qp_num = qp->peer_qp + 1};
        softnic_complete(port, its->cq, &wc);
    }
    pthread_mutex_unlock(&port->lock);
    if (there && atomic_load(&port->cqs[its->cq].armed))
        softnic_wake(port);
    return there;
}

static bool deliver(struct softnic_qp *qp, uint64_t now)
{
    bool any = false;

    while (qp->delivered != qp->copied) {
        struct softnic_send *send = send_at(qp, qp->delivered);
        if (!send->status && now < send->deliver_ns)
            break;
        if (!send->status && notifies(send)) {
            struct softnic_port *port = softnic_port_of(qp->peer_pid);
            if (is_dead(qp, port) || !softnic_is_alive(qp->peer_pid)) {
                send->status = IBV_WC_RETRY_EXC_ERR;
            } else if (!notify(qp, port, send)) {
                qp->rnr_ns = qp->rnr_ns ? qp->rnr_ns : now;
                if (now - qp->rnr_ns < RNR_NS)
                    break;
                send->status = IBV_WC_RNR_RETRY_EXC_ERR;
            } else {
                qp->rnr_ns = 0;
                softnic_note(send->run_bytes, softnic_now_ns() - send->posted_ns);
            }
        }
        qp->delivered++;
        any = true;
    }
    return any;
}

/* ---- and back ---- */

static void end_send(const struct softnic_qp *qp, const struct softnic_send *send,
                     enum ibv_wc_status status)
{
    struct ibv_wc wc = {.wr_id = send->wr_id,
                        .status = status,
                        .opcode = send->opcode == IBV_WR_SEND ? IBV_WC_SEND : IBV_WC_RDMA_WRITE,
                        .qp_num = qp->index + 1};

    if (!status && !send->signaled)
        return;
    softnic_port_lock(softnic.port);
    softnic_complete(softnic.port, qp->send_cq, &wc);
    pthread_mutex_unlock(&softnic.port->lock);
}

void softnic_flush(struct softnic_qp *qp)
{
    struct softnic_shared_qp *own = &softnic.port->qps[qp->index];
    uint32_t done = atomic_load(&qp->done);

    for (; done != atomic_load(&qp->posted); done++)
        end_send(qp, send_at(qp, done), IBV_WC_WR_FLUSH_ERR);
    qp->copied = qp->delivered = done;
    atomic_store(&qp->done, done);
    softnic_port_lock(softnic.port);
    for (; own->n; own->n--, own->first++) {
        struct ibv_wc wc = {.wr_id = own->recvs[own->first % SOFTNIC_RECVS].wr_id,
                            .status = IBV_WC_WR_FLUSH_ERR,
                            .opcode = IBV_WC_RECV,
                            .qp_num = qp->index + 1};
        softnic_complete(softnic.port, own->cq, &wc);
    }
    pthread_mutex_unlock(&softnic.port->lock);
}

static bool acknowledge(struct softnic_qp *qp, uint64_t now)
{
    uint32_t done = atomic_load_explicit(&qp->done, memory_order_relaxed), before = done;

    while (done != qp->delivered) {
        struct softnic_send *send = send_at(qp, done);
        if (!send->status && now < send->ack_ns)
            break;
        end_send(qp, send, send->status);
        done++;
        atomic_store_explicit(&qp->done, done, memory_order_release);
        if (send->status) { /* nothing goes this way any more */
            atomic_store(&softnic.port->qps[qp->index].state, IBV_QPS_ERR);
            softnic_flush(qp);
            break;
        }
    }
    return done != before;
}

/* ---- the thread ---- */

/* Tell who sleeps until something is in a queue. */
static void tell_armed(void)
{
    for (unsigned i = 0; i < SOFTNIC_CQS; i++) {
        struct softnic_cq *cq = softnic.cqs[i];
        struct softnic_shared_cq *shared = &softnic.port->cqs[i];
        if (!cq || cq->told_fd < 0 || atomic_load(&shared->head) == atomic_load(&shared->tail) ||
            !atomic_exchange(&shared->armed, false))
            continue;
        if (write(cq->told_fd, &cq, sizeof(cq)) < 0)
            atomic_store(&shared->armed, true);
    }
}

/* One look at everything. Returns whether something happened; *waits_p: something is on its way. */
static bool turn(bool *waits_p)
{
    bool any = false;

    *waits_p = false;
    for (unsigned i = 0; i < SOFTNIC_QPS; i++) {
        struct softnic_qp *qp = softnic.qps[i];
        if (!qp || atomic_load(&softnic.port->qps[i].state) != IBV_QPS_RTS)
            continue;
        map_ahead(qp);
        any = copy_run(qp) || any;
        uint64_t now = softnic_now_ns();
        any = deliver(qp, now) || any;
        any = acknowledge(qp, now) || any;
        *waits_p = *waits_p || atomic_load(&qp->done) != atomic_load(&qp->posted);
    }
    tell_armed();
    return any;
}

static void *run(void *arg)
{
    cpu_set_t all;
    bool waits = false;

    (void)arg;
    memset(&all, 0xff, sizeof(all)); /* a card takes no core of the ranks' */
    (void)sched_setaffinity(0, sizeof(all), &all);
    while (!atomic_load(&softnic.stops)) {
        pthread_mutex_lock(&softnic.lock);
        bool any = turn(&waits);
        pthread_mutex_unlock(&softnic.lock);
        while (atomic_load(&softnic.wanted))
            sched_yield();
        if (any || softnic.spins)
            continue;
        if (waits)
            sched_yield();
        else
            softnic_sleep(5000000);
    }
    return NULL;
}

void softnic_enter(void)
{
    atomic_fetch_add(&softnic.wanted, 1);
    pthread_mutex_lock(&softnic.lock);
    atomic_fetch_sub(&softnic.wanted, 1);
}

void softnic_leave(void)
{
    pthread_mutex_unlock(&softnic.lock);
}

bool softnic_engine_start(void)
{
    atomic_store(&softnic.stops, false);
    return !pthread_create(&softnic.engine, NULL, run, NULL);
}

void softnic_engine_stop(void)
{
    atomic_store(&softnic.stops, true);
    softnic_wake(softnic.port);
    pthread_join(softnic.engine, NULL);
}
