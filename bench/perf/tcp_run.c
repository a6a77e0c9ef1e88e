/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of the floor of TCP. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

#include "attend.h"
#include "fail.h"
#include "tcp.h"

/* The byte that replaces a missing tensor. */
static char token;
static const struct perf_parts token_parts = {{{&token, 1}}, 1, 1};

static inline const struct perf_parts *parts_of(const struct perf_tcp_flow *flow)
{
    return flow->with_parts[flow->stage] ? &flow->parts[flow->place] : &token_parts;
}

/* Account for @a bytes more; returns true if the message is complete. */
static inline int advance(const struct perf_case *c, struct perf_tcp_flow *flow, size_t whole,
                          size_t bytes)
{
    flow->at += bytes;
    if (flow->at < whole)
        return 0;
    flow->at = 0;
    flow->done++;
    if (++flow->place == c->window) {
        flow->place = 0;
        flow->stage = flow->stage == c->n_stages - 1 ? 0 : flow->stage + 1;
    }
    return 1;
}

/* Get the parts left after the first @a at bytes. */
static struct msghdr rest_of(const struct perf_parts *parts, size_t at, struct iovec *iov)
{
    struct msghdr msg = {.msg_iov = iov};

    for (int i = 0; i < parts->n; i++) {
        size_t skipped = at < parts->iov[i].iov_len ? at : parts->iov[i].iov_len;

        at -= skipped;
        if (skipped == parts->iov[i].iov_len)
            continue;
        iov[msg.msg_iovlen++] = (struct iovec){(char *)parts->iov[i].iov_base + skipped,
                                               parts->iov[i].iov_len - skipped};
    }
    return msg;
}

static ssize_t send_rest(int fd, const struct perf_parts *parts, size_t at)
{
    struct iovec iov[PERF_MAX_PUSH];
    struct msghdr msg;

    if (parts->n == 1)
        return send(fd, (const char *)parts->iov[0].iov_base + at, parts->bytes - at,
                    MSG_DONTWAIT | MSG_NOSIGNAL);
    msg = rest_of(parts, at, iov);
    return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Get at most @a most bytes in one piece of a part. */
static ssize_t recv_rest(int fd, const struct perf_parts *parts, size_t at, size_t most, int flags)
{
    struct iovec iov[PERF_MAX_PUSH];
    struct msghdr msg;

    if (parts->n == 1) {
        size_t bytes = parts->bytes - at;

        return recv(fd, (char *)parts->iov[0].iov_base + at, bytes < most ? bytes : most, flags);
    }
    msg = rest_of(parts, at, iov);
    if (msg.msg_iov[0].iov_len > most) {
        msg.msg_iov[0].iov_len = most;
        msg.msg_iovlen = 1;
    }
    return recvmsg(fd, &msg, flags);
}

static int is_for_later(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Send what is due, as far as the socket accepts it. */
static int send_due(const struct perf_case *c, struct perf_tcp_conn *conn)
{
    struct perf_tcp_flow *out = &conn->out;

    while (out->done < out->due) {
        const struct perf_parts *parts = parts_of(out);
        ssize_t n = send_rest(conn->fd, parts, out->at);

        if (n < 0)
            return is_for_later() ? 0 : perf_fail("plain TCP: send: %s", strerror(errno));
        advance(c, out, parts->bytes, (size_t)n);
    }
    return 0;
}

/* One more message is due on @a conn: send it, unless others are queued before it. */
static int post(struct perf_tcp *tcp, struct perf_tcp_conn *conn)
{
    int had_backlog = conn->out.done < conn->out.due;

    conn->out.due++;
    if (had_backlog)
        return 0;
    if (send_due(tcp->c, conn) != 0)
        return -1;
    tcp->backlog += conn->out.done < conn->out.due;
    return 0;
}

static int flush(struct perf_tcp *tcp)
{
    for (int i = 0; i < tcp->n_used && tcp->backlog > 0; i++) {
        struct perf_tcp_conn *conn = &tcp->conns[i];

        if (conn->out.done == conn->out.due)
            continue;
        if (send_due(tcp->c, conn) != 0)
            return -1;
        tcp->backlog -= conn->out.done == conn->out.due;
    }
    return 0;
}

/* Receive the rest of the next message, or some of it. Returns 1 if the message is complete; 0
 * if not, and *moved_p says whether anything arrived. */
static int receive(const struct perf_tcp *tcp, struct perf_tcp_conn *conn, int flags, int *moved_p)
{
    const struct perf_parts *parts = parts_of(&conn->in);
    size_t most = perf_tcp_is_reno(tcp->way) ? PERF_TCP_PIECE : SIZE_MAX;
    ssize_t n = recv_rest(conn->fd, parts, conn->in.at, most, flags);

    *moved_p = n > 0;
    if (n > 0)
        return advance(tcp->c, &conn->in, parts->bytes, (size_t)n);
    if (n < 0 && is_for_later())
        return 0;
    return perf_fail("plain TCP: %s", n == 0 ? "a peer has gone" : strerror(errno));
}

/* Choose how to receive from a connection that is the @a sole one to wait for: where this rank
 * sleeps, has nothing to send and waits for no other, one call waits for all bytes. */
static inline int flags_for(const struct perf_tcp *tcp, int sole)
{
    return !perf_tcp_spins(tcp->way) && sole && tcp->backlog == 0 ? MSG_WAITALL : MSG_DONTWAIT;
}

/* Nothing has moved on connections @a first to @a last: yield, or sleep until something does. */
static int idle(struct perf_tcp *tcp, int first, int last, unsigned *looks)
{
    int n = 0;

    if (perf_tcp_spins(tcp->way)) {
        if (++*looks < tcp->spins)
            return 0;
        sched_yield();
        *looks = 0;
        return 0;
    }
    for (int i = 0; i < tcp->n_used; i++) {
        const struct perf_tcp_conn *conn = &tcp->conns[i];
        int waits =
            i >= first && i <= last &&
            (tcp->place->role == STEPAF_FFN ? conn->left > 0 : conn->in.done < conn->in.due);
        short events =
            (short)((waits ? POLLIN : 0) | (conn->out.done < conn->out.due ? POLLOUT : 0));

        if (events != 0)
            tcp->polls[n++] = (struct pollfd){.fd = conn->fd, .events = events};
    }
    if (n > 0 && poll(tcp->polls, (nfds_t)n, -1) < 0 && errno != EINTR)
        return perf_fail("plain TCP: poll: %s", strerror(errno));
    return 0;
}

static int start(void *self, unsigned place, int stage)
{
    struct perf_tcp *tcp = self;

    (void)place;
    (void)stage;
    for (int i = 0; i < tcp->n_used; i++) {
        if (post(tcp, &tcp->conns[i]) != 0)
            return -1;
    }
    return 0;
}

static int wait(void *self, unsigned place, int stage)
{
    struct perf_tcp *tcp = self;
    unsigned looks = 0;

    (void)place;
    (void)stage;
    for (int i = 0; i < tcp->n_used; i++) {
        struct perf_tcp_conn *conn = &tcp->conns[i];

        conn->in.due++;
        while (conn->in.done < conn->in.due) {
            int moved;

            if (receive(tcp, conn, flags_for(tcp, 1), &moved) < 0 ||
                (tcp->backlog > 0 && flush(tcp) != 0) || (!moved && idle(tcp, i, i, &looks) != 0))
                return -1;
        }
    }
    return 0;
}

static int serve(struct perf_tcp *tcp, uint64_t ops)
{
    uint64_t each = ops * (uint64_t)tcp->c->n_stages;
    uint64_t left = each * (uint64_t)tcp->n_used;
    int in_order = tcp->recv_each || tcp->n_used == 1;
    unsigned looks = 0;
    int vain = 0; /* connections polled since something moved */

    for (int i = 0; i < tcp->n_used; i++)
        tcp->conns[i].left = each;
    for (int i = 0; left > 0 || tcp->backlog > 0;) {
        struct perf_tcp_conn *conn = &tcp->conns[i];
        int whole = 0;
        int moved = 0;

        if (conn->left > 0)
            whole = receive(tcp, conn, flags_for(tcp, in_order), &moved);
        if (whole < 0 || (whole > 0 && post(tcp, conn) != 0) ||
            (tcp->backlog > 0 && flush(tcp) != 0))
            return -1;
        left -= (uint64_t)whole;
        conn->left -= (uint64_t)whole;
        vain = moved ? 0 : vain + 1;
        if (vain >= (in_order && left > 0 ? 1 : tcp->n_used)) {
            if (idle(tcp, in_order ? i : 0, in_order ? i : tcp->n_used - 1, &looks) != 0)
                return -1;
            vain = 0;
        }
        if (whole > 0 || !in_order)
            i = i == tcp->n_used - 1 ? 0 : i + 1;
    }
    return 0;
}

int perf_tcp_run(void *self, struct perf_block *block)
{
    struct perf_tcp *tcp = self;

    if (tcp->place->role == STEPAF_FFN)
        return serve(tcp, block->lead_ops + block->timed_ops);
    return perf_attend_block(tcp->c, tcp, start, wait, block);
}
