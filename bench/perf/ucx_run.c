/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of the floor of UCX. */
#include <sched.h>
#include <string.h>

#include "attend.h"
#include "fail.h"
#include "ucx_state.h"

static void advance(const struct perf_ucx *ucx, struct perf_ucx_turn *turn)
{
    if (++turn->place < ucx->c->window)
        return;
    turn->place = 0;
    turn->stage = turn->stage == ucx->c->n_stages - 1 ? 0 : turn->stage + 1;
}

/* Parts that the message that is coming has. */
static inline unsigned parts_coming(const struct perf_ucx_conn *conn)
{
    int n = conn->messages[conn->in.place].in.n;

    return conn->in_parts[conn->in.stage] && n > 0 ? (unsigned)n : 1;
}

static inline void land(const struct perf_ucx *ucx, struct perf_ucx_conn *conn)
{
    if (++conn->landed < parts_coming(conn))
        return;
    conn->landed = 0;
    conn->arrived++;
    advance(ucx, &conn->in);
}

/* What UCX had only told of is in its place. */
static void fetched(void *request, ucs_status_t status, size_t bytes, void *user_data)
{
    struct perf_ucx_conn *conn = user_data;

    (void)bytes;
    conn->ucx->calls.request_free(request);
    conn->ucx->under_way--;
    if (status != UCS_OK)
        conn->ucx->failed = status;
    land(conn->ucx, conn);
}

static ucs_status_t fetch(struct perf_ucx_conn *conn, void *data, void *to, size_t bytes)
{
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.recv_am = fetched,
                                       .user_data = conn};
    struct perf_ucx *ucx = conn->ucx;
    ucs_status_ptr_t request = ucx->calls.am_recv_data_nbx(ucx->worker, data, to, bytes, &param);

    if (UCS_PTR_IS_ERR(request))
        ucx->failed = UCS_PTR_STATUS(request);
    if (UCS_PTR_IS_PTR(request))
        ucx->under_way++;
    else
        land(ucx, conn);
    return UCS_INPROGRESS;
}

ucs_status_t perf_ucx_take(void *arg, const void *header, size_t header_bytes, void *data,
                           size_t bytes, const ucp_am_recv_param_t *param)
{
    struct perf_ucx *ucx = arg;
    struct perf_ucx_head head;

    memcpy(&head, header, sizeof(head)); /* it lies anywhere */
    struct perf_ucx_conn *conn = &ucx->conns[head.sender];
    void *to = conn->messages[head.place].in.iov[head.part].iov_base;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
        return fetch(conn, data, to, bytes);
    if (bytes > 0)
        memcpy(to, data, bytes);
    else if (header_bytes > sizeof(head))
        memcpy(to, (const char *)header + sizeof(head), header_bytes - sizeof(head));
    land(ucx, conn);
    return UCS_OK;
}

/* Take in what is there, giving way now and then. */
static inline int look(struct perf_ucx *ucx, unsigned *looks)
{
    if (ucx->calls.worker_progress(ucx->worker) != 0)
        *looks = 0;
    if (ucx->failed != UCS_OK)
        return perf_fail("plain UCX: %s", ucx->calls.status_string(ucx->failed));
    if (++*looks < ucx->spins)
        return 0;
    sched_yield();
    *looks = 0;
    return 0;
}

static void sent(void *request, ucs_status_t status, void *user_data)
{
    struct perf_ucx *ucx = user_data;

    ucx->calls.request_free(request);
    ucx->under_way--;
    if (status != UCS_OK)
        ucx->failed = status;
}

static int send_part(struct perf_ucx *ucx, const struct perf_ucx_conn *conn,
                     const struct perf_ucx_head *head, char *small, const void *from, size_t bytes)
{
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = sent,
                                       .user_data = ucx};
    size_t head_bytes = sizeof(*head);
    ucs_status_ptr_t request;

    if (bytes <= PERF_UCX_SMALL && bytes > 0) {
        memcpy(small, head, sizeof(*head));
        memcpy(small + sizeof(*head), from, bytes);
        head = (const struct perf_ucx_head *)(const void *)small;
        head_bytes += bytes;
        bytes = 0;
    }
    request = ucx->calls.am_send_nbx(conn->ep, PERF_UCX_ID, head, head_bytes, from, bytes, &param);
    if (UCS_PTR_IS_ERR(request))
        return perf_fail("plain UCX: %s", ucx->calls.status_string(UCS_PTR_STATUS(request)));
    ucx->under_way += UCS_PTR_IS_PTR(request);
    return 0;
}

static int post(struct perf_ucx *ucx, const struct perf_ucx_conn *conn, unsigned place, int stage)
{
    struct perf_ucx_message *message = &conn->messages[place];

    if (!conn->out_parts[stage] || message->out.n == 0)
        return send_part(ucx, conn, &message->heads[0], NULL, NULL, 0);
    for (int i = 0; i < message->out.n; i++)
        if (send_part(ucx, conn, &message->heads[i], message->small[i],
                      message->out.iov[i].iov_base, message->out.iov[i].iov_len) != 0)
            return -1;
    return 0;
}

static int start(void *self, unsigned place, int stage)
{
    struct perf_ucx *ucx = self;

    for (int i = 0; i < ucx->n_used; i++)
        if (post(ucx, ucx->used[i], place, stage) != 0)
            return -1;
    return 0;
}

static int wait(void *self, unsigned place, int stage)
{
    struct perf_ucx *ucx = self;
    unsigned looks = 0;

    (void)place;
    (void)stage;
    for (int i = 0; i < ucx->n_used; i++) {
        while (ucx->used[i]->arrived == ucx->used[i]->taken)
            if (look(ucx, &looks) != 0)
                return -1;
        ucx->used[i]->taken++;
    }
    return 0;
}

static int serve(struct perf_ucx *ucx, uint64_t ops)
{
    uint64_t each = ops * (uint64_t)ucx->c->n_stages;
    uint64_t left = each * (uint64_t)ucx->n_used;
    unsigned looks = 0;

    for (int i = 0; i < ucx->n_used; i++)
        ucx->used[i]->left = each;
    for (int i = 0; left > 0;) {
        struct perf_ucx_conn *conn = ucx->used[i];
        int here = conn->left > 0 && conn->arrived != conn->taken;

        if (here && post(ucx, conn, conn->out.place, conn->out.stage) != 0)
            return -1;
        if (here) {
            advance(ucx, &conn->out);
            conn->taken++;
            conn->left--;
            left--;
        }
        if (here || !ucx->recv_each)
            i = i == ucx->n_used - 1 ? 0 : i + 1;
        if (!here && (ucx->recv_each || i == 0) && look(ucx, &looks) != 0)
            return -1;
    }
    return 0;
}

/* Nobody polls between blocks: what was written has to be gone. */
static int drain(struct perf_ucx *ucx)
{
    unsigned looks = 0;

    while (ucx->under_way > 0)
        if (look(ucx, &looks) != 0)
            return -1;
    return 0;
}

int perf_ucx_run(void *self, struct perf_block *block)
{
    struct perf_ucx *ucx = self;
    int rc;

    if (ucx->place->role == STEPAF_FFN)
        rc = serve(ucx, block->lead_ops + block->timed_ops);
    else
        rc = perf_attend_block(ucx->c, ucx, start, wait, block);
    return rc == 0 ? drain(ucx) : rc;
}
