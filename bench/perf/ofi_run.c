/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of the floor of libfabric. */
#include <sched.h>

#include "attend.h"
#include "fail.h"
#include "ofi_state.h"

enum { POLL = 16 };

static void advance(const struct perf_ofi *ofi, struct perf_ofi_turn *turn)
{
    if (++turn->place < ofi->c->window)
        return;
    turn->place = 0;
    turn->stage = turn->stage == ofi->c->n_stages - 1 ? 0 : turn->stage + 1;
}

/* Return the number of writes of the incoming message. */
static inline unsigned writes_of(const struct perf_ofi_conn *conn)
{
    return conn->in_parts[conn->in.stage] && conn->n_in[conn->in.place] > 0
               ? conn->n_in[conn->in.place]
               : 1;
}

static inline void land(const struct perf_ofi *ofi, struct perf_ofi_conn *conn)
{
    if (++conn->landed < writes_of(conn))
        return;
    conn->landed = 0;
    conn->arrived++;
    advance(ofi, &conn->in);
}

static int fail_by_queue(const struct perf_ofi *ofi, ssize_t n)
{
    struct fi_cq_err_entry entry = {.err = (int)-n};

    if (n == -FI_EAVAIL)
        (void)fi_cq_readerr(ofi->cq, &entry, 0);
    return perf_fail("plain libfabric: %s", ofi->calls.strerror(entry.err));
}

/* Process available completions; return their number, or -1. */
static int poll_once(struct perf_ofi *ofi)
{
    struct fi_cq_data_entry entries[POLL];
    ssize_t n = fi_cq_read(ofi->cq, entries, POLL);

    if (n == -FI_EAGAIN)
        return 0;
    if (n < 0)
        return fail_by_queue(ofi, n);
    for (ssize_t i = 0; i < n; i++) {
        struct perf_ofi_op *op = entries[i].op_context;

        if (entries[i].flags & FI_REMOTE_WRITE ||
            (entries[i].flags & FI_REMOTE_CQ_DATA && !(entries[i].flags & FI_WRITE))) {
            if (entries[i].data < (uint64_t)ofi->n_conns)
                land(ofi, &ofi->conns[entries[i].data]);
        } else {
            op->next = ofi->free_op;
            ofi->free_op = op;
            ofi->under_way--;
        }
    }
    return (int)n;
}

/* The same, yielding occasionally. */
static inline int look(struct perf_ofi *ofi, unsigned *looks)
{
    int n = poll_once(ofi);

    if (n > 0)
        *looks = 0;
    if (n != 0 || ++*looks < ofi->spins)
        return n < 0 ? -1 : 0;
    sched_yield();
    *looks = 0;
    return 0;
}

/* Post one write; if the queue is full, once there is space. */
static int write_part(struct perf_ofi *ofi, const struct perf_ofi_conn *conn,
                      const struct iovec *from, uint64_t to, uint64_t flags)
{
    struct fi_rma_iov there = {to, from->iov_len, conn->key};
    void *desc = fi_mr_desc(ofi->mr);
    struct fi_msg_rma msg = {.msg_iov = from,
                             .desc = &desc,
                             .iov_count = 1,
                             .addr = conn->address,
                             .rma_iov = &there,
                             .rma_iov_count = 1,
                             .data = (uint64_t)ofi->place->index};
    unsigned looks = 0;

    while (1) {
        struct perf_ofi_op *op = ofi->free_op;
        ssize_t error = -FI_EAGAIN;

        msg.context = op;
        if (op != NULL)
            error = ofi->by_writedata
                        ? fi_writedata(ofi->ep, from->iov_base, from->iov_len, desc, msg.data,
                                       conn->address, to, conn->key, op)
                        : fi_writemsg(ofi->ep, &msg, flags | FI_REMOTE_CQ_DATA | FI_COMPLETION);
        if (error == 0) {
            ofi->free_op = op->next;
            ofi->under_way++;
            return 0;
        }
        if (error != -FI_EAGAIN)
            return perf_fail("plain libfabric: %s", ofi->calls.strerror((int)-error));
        flags = 0;
        if (look(ofi, &looks) != 0)
            return -1;
    }
}

static int post(struct perf_ofi *ofi, const struct perf_ofi_conn *conn, unsigned place, int stage)
{
    const struct perf_ofi_message *message = &conn->messages[place];
    const struct iovec nothing = {ofi->buffers->base, 0};

    if (!conn->out_parts[stage] || message->parts.n == 0)
        return write_part(ofi, conn, &nothing, conn->base, 0);
    for (int i = 0; i < message->parts.n; i++)
        if (write_part(ofi, conn, &message->parts.iov[i], message->to[i],
                       i < message->parts.n - 1 ? FI_MORE : 0) != 0)
            return -1;
    return 0;
}

static int start(void *self, unsigned place, int stage)
{
    struct perf_ofi *ofi = self;

    for (int i = 0; i < ofi->n_used; i++)
        if (post(ofi, ofi->used[i], place, stage) != 0)
            return -1;
    return 0;
}

static int wait(void *self, unsigned place, int stage)
{
    struct perf_ofi *ofi = self;
    unsigned looks = 0;

    (void)place;
    (void)stage;
    for (int i = 0; i < ofi->n_used; i++) {
        while (ofi->used[i]->arrived == ofi->used[i]->taken)
            if (look(ofi, &looks) != 0)
                return -1;
        ofi->used[i]->taken++;
    }
    return 0;
}

static int serve(struct perf_ofi *ofi, uint64_t ops)
{
    uint64_t each = ops * (uint64_t)ofi->c->n_stages;
    uint64_t left = each * (uint64_t)ofi->n_used;
    unsigned looks = 0;

    for (int i = 0; i < ofi->n_used; i++)
        ofi->used[i]->left = each;
    for (int i = 0; left > 0;) {
        struct perf_ofi_conn *conn = ofi->used[i];
        int here = conn->left > 0 && conn->arrived != conn->taken;

        if (here && post(ofi, conn, conn->out.place, conn->out.stage) != 0)
            return -1;
        if (here) {
            advance(ofi, &conn->out);
            conn->taken++;
            conn->left--;
            left--;
        }
        if (here || !ofi->recv_each)
            i = i == ofi->n_used - 1 ? 0 : i + 1;
        if (!here && (ofi->recv_each || i == 0) && look(ofi, &looks) != 0)
            return -1;
    }
    return 0;
}

/* Nobody polls between blocks: all writes must have completed. */
static int drain(struct perf_ofi *ofi)
{
    unsigned looks = 0;

    while (ofi->under_way > 0)
        if (look(ofi, &looks) != 0)
            return -1;
    return 0;
}

int perf_ofi_run(void *self, struct perf_block *block)
{
    struct perf_ofi *ofi = self;
    int rc;

    if (ofi->place->role == STEPAF_FFN)
        rc = serve(ofi, block->lead_ops + block->timed_ops);
    else
        rc = perf_attend_block(ofi->c, ofi, start, wait, block);
    return rc == 0 ? drain(ofi) : rc;
}
