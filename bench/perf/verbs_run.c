/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of the floor of RDMA. */
#include <sched.h>
#include <string.h>

#include "attend.h"
#include "fail.h"
#include "verbs_state.h"

enum { POLL = 16, COUNT_BITS = 32 };

/* A receive was consumed: post half of them anew once half are used up. */
static int arrived(struct perf_verbs *verbs, struct perf_verbs_conn *conn)
{
    unsigned half = verbs->receives / 2;
    struct ibv_recv_wr *bad;
    int error;

    conn->arrived++;
    if (++conn->consumed < half)
        return 0;
    conn->consumed = 0;
    for (unsigned i = 0; i < half; i++)
        verbs->refill[i].wr_id = conn->index;
    error = ibv_post_recv(conn->qp, verbs->refill, &bad);
    return error == 0 ? 0 : perf_fail("plain verbs: posting receives: %s", strerror(error));
}

/* Take in what is there; the number of completions, or -1. */
static int poll_once(struct perf_verbs *verbs)
{
    struct ibv_wc wc[POLL];
    int n = ibv_poll_cq(verbs->cq, POLL, wc);

    for (int i = 0; i < n; i++) {
        struct perf_verbs_conn *conn = &verbs->conns[(uint32_t)wc[i].wr_id];

        if (wc[i].status != IBV_WC_SUCCESS)
            return perf_fail("plain verbs: %s", ibv_wc_status_str(wc[i].status));
        if (wc[i].opcode != IBV_WC_RECV_RDMA_WITH_IMM)
            conn->done = (uint32_t)(wc[i].wr_id >> COUNT_BITS);
        else if (arrived(verbs, conn) != 0)
            return -1;
    }
    return n;
}

/* The same, giving way now and then. */
static inline int look(struct perf_verbs *verbs, unsigned *looks)
{
    int n = poll_once(verbs);

    if (n > 0)
        *looks = 0;
    if (n != 0 || ++*looks < verbs->spins)
        return n < 0 ? -1 : 0;
    sched_yield();
    *looks = 0;
    return 0;
}

static int post(struct perf_verbs *verbs, struct perf_verbs_conn *conn,
                struct perf_verbs_message *message)
{
    struct ibv_send_wr *last = &message->wr[message->n - 1], *bad;
    int error;

    while (conn->posted + message->n - conn->done > verbs->depth) {
        if (poll_once(verbs) < 0)
            return -1;
    }
    conn->posted += message->n;
    last->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
    if (message->signalled || conn->posted - conn->asked >= verbs->depth / 4) {
        last->send_flags |= IBV_SEND_SIGNALED;
        conn->asked = conn->posted;
    }
    last->wr_id = (uint64_t)conn->posted << COUNT_BITS | conn->index;
    error = ibv_post_send(conn->qp, message->wr, &bad);
    return error == 0 ? 0 : perf_fail("plain verbs: posting: %s", strerror(error));
}

static int start(void *self, unsigned place, int stage)
{
    struct perf_verbs *verbs = self;

    for (int i = 0; i < verbs->n_used; i++) {
        struct perf_verbs_conn *conn = verbs->used[i];

        if (post(verbs, conn, conn->with_parts[stage] ? &conn->messages[place] : &conn->empty) != 0)
            return -1;
    }
    return 0;
}

static int wait(void *self, unsigned place, int stage)
{
    struct perf_verbs *verbs = self;
    unsigned looks = 0;

    (void)place;
    (void)stage;
    for (int i = 0; i < verbs->n_used; i++) {
        struct perf_verbs_conn *conn = verbs->used[i];

        while (conn->arrived == conn->taken) {
            if (look(verbs, &looks) != 0)
                return -1;
        }
        conn->taken++;
    }
    return 0;
}

/* Answer a connection's next message. */
static int answer(struct perf_verbs *verbs, struct perf_verbs_conn *conn)
{
    const struct perf_case *c = verbs->c;
    int with_parts = conn->with_parts[conn->stage];

    if (post(verbs, conn, with_parts ? &conn->messages[conn->place] : &conn->empty) != 0)
        return -1;
    conn->taken++;
    conn->left--;
    if (++conn->place == c->window) {
        conn->place = 0;
        conn->stage = conn->stage == c->n_stages - 1 ? 0 : conn->stage + 1;
    }
    return 0;
}

static int serve(struct perf_verbs *verbs, uint64_t ops)
{
    uint64_t each = ops * (uint64_t)verbs->c->n_stages;
    uint64_t left = each * (uint64_t)verbs->n_used;
    unsigned looks = 0;

    for (int i = 0; i < verbs->n_used; i++)
        verbs->used[i]->left = each;
    for (int i = 0; left > 0;) {
        struct perf_verbs_conn *conn = verbs->used[i];
        int here = conn->left > 0 && conn->arrived != conn->taken;

        if (here && answer(verbs, conn) != 0)
            return -1;
        left -= (uint64_t)here;
        if (here || !verbs->recv_each)
            i = i == verbs->n_used - 1 ? 0 : i + 1;
        if (!here && (verbs->recv_each || i == 0) && look(verbs, &looks) != 0)
            return -1;
    }
    return 0;
}

int perf_verbs_run(void *self, struct perf_block *block)
{
    struct perf_verbs *verbs = self;

    if (verbs->place->role == STEPAF_FFN)
        return serve(verbs, block->lead_ops + block->timed_ops);
    return perf_attend_block(verbs->c, verbs, start, wait, block);
}
