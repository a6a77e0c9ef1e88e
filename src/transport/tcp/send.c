/* SPDX-License-Identifier: Apache-2.0 */
/* Sending: one vectored send for a post, directly from its tensors (three, if a large one is sent
 * without a copy). If the socket accepts only a part, the post stays QUEUED and the connection
 * records how much is sent; when offered again, the post continues from there. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "transport/tcp/layout.h"

/* Return whether iov[i] is worth sending without a copy. */
static inline bool is_zerocopy(const struct stepaf_tcp_connection *connection,
                               const struct stepaf_tcp_share *share, int i)
{
    const struct stepaf_tcp_link *link = connection->link;

    return __builtin_expect(link->zerocopy, 0) && share->payloads & 1u << i && !link->zeros.base &&
           share->iov[i].iov_len >=
               (uint64_t)stepaf_tcp_of(link)->base.up->env->tcp_zerocopy_bytes &&
           link->n_held < STEPAF_TCP_HELD_POSTS &&
           connection->zerocopy.sends - connection->zerocopy.freed < STEPAF_TCP_ZEROCOPY_SENDS;
}

/* Send from iov[i] on as much as one call can: a payload without a copy, or everything before the
 * next such payload. Returns like sendmsg; *next_p: what follows. */
static ssize_t push_run(struct stepaf_tcp_connection *connection, struct stepaf_tcp_share *share,
                        int i, int *next_p)
{
    bool zerocopy = is_zerocopy(connection, share, i);
    int next = i + 1, flags = MSG_NOSIGNAL | MSG_DONTWAIT;

    while (!zerocopy && next < share->n && !is_zerocopy(connection, share, next))
        next++;
    if (next < share->n)
        flags |= MSG_MORE;
    *next_p = next;
    struct msghdr message = {.msg_iov = &share->iov[i], .msg_iovlen = (size_t)(next - i)};
    if (zerocopy) {
        ssize_t sent = sendmsg(connection->fd, &message, flags | MSG_ZEROCOPY);
        if (sent >= 0) {
            connection->zerocopy.sends++;
            connection->link->has_zerocopy = true;
        }
        if (sent >= 0 || errno != ENOBUFS) /* too many in flight */
            return sent;
    }
    return sendmsg(connection->fd, &message, flags);
}

/* Leave out what is sent. The rest begins with iov[i]; return i. */
static int cut_sent(const struct stepaf_tcp_connection *connection, struct stepaf_tcp_share *share)
{
    uint64_t skip = connection->sent;
    int i = 0;

    while (i < share->n && skip >= share->iov[i].iov_len)
        skip -= share->iov[i++].iov_len;
    if (i < share->n) {
        share->iov[i].iov_base = (uint8_t *)share->iov[i].iov_base + skip;
        share->iov[i].iov_len -= skip;
    }
    return i;
}

/* Return whether a failed send may be tried again. */
static bool is_full(int error)
{
    return error == EAGAIN || error == EINTR || error == ENOBUFS;
}

/* Send the rest of the share, as far as the socket accepts it. Returns false if the connection is
 * broken. */
static bool push(struct stepaf_tcp_connection *connection, struct stepaf_tcp_share *share)
{
    int next = 0;

    for (int i = cut_sent(connection, share); i < share->n; i = next) {
        size_t wanted = 0;
        ssize_t sent = push_run(connection, share, i, &next);
        if (sent < 0)
            return is_full(errno);
        connection->sent += (uint64_t)sent;
        for (int k = i; k < next; k++)
            wanted += share->iov[k].iov_len;
        if ((size_t)sent < wanted)
            return true;
    }
    return true;
}

/* Send the end of a message that an earlier send has begun. Returns false if the connection is
 * broken. */
static bool push_tail(struct stepaf_tcp_link *link)
{
    while (link->tail.at < link->tail.bytes) {
        ssize_t sent =
            send(link->connections[0].fd, link->tail.data + link->tail.at,
                 (size_t)(link->tail.bytes - link->tail.at), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return is_full(errno);
        link->tail.at = (uint8_t)(link->tail.at + sent);
    }
    link->tail.at = link->tail.bytes = 0;
    stepaf_tcp_of(link)->count.tails--;
    return true;
}

/* Begin a post: each striped tensor counts once for every other connection. */
static void begin_post(const struct stepaf_tcp *tcp, struct stepaf_tcp_link *link,
                       const struct stepaf_post *post)
{
    link->current = post;
    link->has_zerocopy = false;
    for (unsigned i = 0; i < tcp->n_connections; i++)
        link->connections[i].sent = 0;
    for (unsigned i = 0; tcp->n_connections > 1 && i < post->n_xfer; i++)
        link->tx_parts += stepaf_tcp_is_striped(tcp, link, &post->xfer[i]);
}

/* Send the pieces of other connections; *done_p: the kernel has all of them. Returns false if a
 * connection is broken. */
static bool push_parts(struct stepaf_tcp *tcp, struct stepaf_tcp_link *link,
                       const struct stepaf_post *post, bool *done_p)
{
    *done_p = true;
    for (unsigned i = 1; i < tcp->n_connections; i++) {
        struct stepaf_tcp_share share;
        stepaf_tcp_share_clear(&share);
        stepaf_tcp_lay_out_parts(tcp, link, post, i, &share);
        if (!push(&link->connections[i], &share))
            return false;
        *done_p = *done_p && link->connections[i].sent == share.bytes;
    }
    return true;
}

/* Send the frame, and the message if nothing else is missing; *done_p: the kernel has everything,
 * or the rest of the message is in the link's tail. Returns false if the connection is broken. */
static bool push_frame(struct stepaf_tcp *tcp, struct stepaf_tcp_link *link,
                       const struct stepaf_post *post, bool with_message, bool *done_p)
{
    struct stepaf_tcp_connection *connection = &link->connections[0];
    uint32_t tail_bytes = 0;
    struct stepaf_tcp_share share;

    stepaf_tcp_share_clear(&share);
    stepaf_tcp_lay_out_frame(tcp, link, post, &share);
    uint64_t before_message = share.bytes;
    if (with_message) {
        static const struct stepaf_msg nothing = {.type = STEPAF_TCP_VOID};
        tail_bytes = stepaf_tcp_lay_out_message(
            __builtin_expect(link->zeros.base != NULL, 0) ? &nothing : &post->msg, before_message,
            link->tail.data);
        stepaf_tcp_share_add(&share, link->tail.data, tail_bytes);
    }
    if (!push(connection, &share))
        return false;
    *done_p = with_message && connection->sent > before_message;
    if (*done_p) {
        uint64_t gone = connection->sent - before_message;
        if (__builtin_expect(gone < tail_bytes, 0)) {
            link->tail.at = (uint8_t)gone;
            link->tail.bytes = (uint8_t)tail_bytes;
            tcp->count.tails++;
        }
    }
    return true;
}

static bool has_parts(const struct stepaf_tcp *tcp, const struct stepaf_tcp_link *link,
                      const struct stepaf_post *post)
{
    for (unsigned i = 0; i < post->n_xfer; i++)
        if (stepaf_tcp_is_striped(tcp, link, &post->xfer[i]))
            return true;
    return false;
}

/* Return whether the rest of the share is for another thread. Payloads sent without a copy are not,
 * and are counted here. */
static bool is_for_thread(const struct stepaf_tcp_connection *connection,
                          const struct stepaf_tcp_share *share)
{
    for (int i = 0; i < share->n; i++)
        if (is_zerocopy(connection, share, i))
            return false;
    return share->bytes - connection->sent >= STEPAF_TCP_SHARED_BYTES;
}

/* Return whether the socket accepts much, or has failed. Until then nothing is sent: else small
 * pieces would be sent as space for them appears, and a slow peer would keep threads awake. */
static bool socket_has_room(const struct stepaf_tcp_connection *connection)
{
    struct pollfd socket = {.fd = connection->fd, .events = POLLOUT};

    return poll(&socket, 1, 0) == 1;
}

static const struct stepaf_tcp_copy *offer_share(struct stepaf_tcp_connection *connection,
                                                 struct stepaf_tcp_share *share)
{
    int first = cut_sent(connection, share);
    struct stepaf_tcp_copy copy = {
        .fd = connection->fd, .iov = &share->iov[first], .n_iov = (unsigned)(share->n - first)};

    return stepaf_tcp_copiers_offer(stepaf_tcp_of(connection->link)->copiers.it, &copy);
}

/* Record what another thread has sent of a share; returns false with errno if the connection is
 * broken. */
static bool take_sent(struct stepaf_tcp_connection *connection, const struct stepaf_tcp_copy *copy)
{
    connection->sent += copy->bytes;
    if (!copy->error || is_full(copy->error))
        return true;
    errno = copy->error;
    return false;
}

/* Like push_parts, with the help of other threads, which have finished when this returns. The
 * frame, without its message, is sent at the same time. */
static __attribute__((noinline)) bool push_together(struct stepaf_tcp *tcp,
                                                    struct stepaf_tcp_link *link,
                                                    const struct stepaf_post *post, bool *done_p)
{
    const struct stepaf_tcp_copy *copies[STEPAF_TCP_CONNECTIONS_MAX] = {NULL};
    struct stepaf_tcp_share shares[STEPAF_TCP_CONNECTIONS_MAX];
    bool theirs[STEPAF_TCP_CONNECTIONS_MAX];
    bool good = true, any = false, has_gone;
    int error = 0;

    for (unsigned i = 1; i < tcp->n_connections; i++) {
        struct stepaf_tcp_connection *connection = &link->connections[i];
        stepaf_tcp_share_clear(&shares[i]);
        stepaf_tcp_lay_out_parts(tcp, link, post, i, &shares[i]);
        theirs[i] = is_for_thread(connection, &shares[i]);
        if (theirs[i] && socket_has_room(connection))
            copies[i] = offer_share(connection, &shares[i]);
        any = any || copies[i];
    }
    if (any)
        good = push_frame(tcp, link, post, false, &has_gone);
    for (unsigned i = 1; i < tcp->n_connections && good; i++)
        good = theirs[i] || push(&link->connections[i], &shares[i]);
    error = errno;
    stepaf_tcp_copiers_join(tcp->copiers.it);
    errno = error;
    *done_p = true;
    for (unsigned i = 1; i < tcp->n_connections; i++) {
        if (copies[i])
            good = take_sent(&link->connections[i], copies[i]) && good;
        *done_p = *done_p && link->connections[i].sent == shares[i].bytes;
    }
    return good;
}

static bool push_post(struct stepaf_tcp *tcp, struct stepaf_tcp_link *link,
                      const struct stepaf_post *post, bool *done_p)
{
    bool parts_done = true, good = true;

    *done_p = false;
    if (__builtin_expect(link->tail.bytes, 0)) {
        if (!push_tail(link))
            return false;
        if (link->tail.bytes)
            return true;
    }
    if (link->current != post)
        begin_post(tcp, link, post);
    if (__builtin_expect(tcp->n_connections > 1, 0))
        good = tcp->copiers.it && has_parts(tcp, link, post)
                   ? push_together(tcp, link, post, &parts_done)
                   : push_parts(tcp, link, post, &parts_done);
    return good && push_frame(tcp, link, post, parts_done, done_p);
}

static void broken(struct stepaf_tcp_link *link)
{
    char reason[STEPAF_REASON_MAX];

    if (link->unwritable) { /* nothing is delivered any more, and the peer cannot be notified */
        stepaf_tcp_lost(link, link->trouble);
        return;
    }
    snprintf(reason, sizeof(reason), "sending: %s",
             errno == EFAULT ? "registered memory of this rank is no longer mapped"
                             : strerror(errno));
    stepaf_tcp_break(link, reason);
}

/* Replace the rest of a post whose memory is no longer mapped. The peer must receive the announced
 * bytes, so zeros are sent, and then nothing that makes the peer read them. Returns false if there
 * is no memory for the zeros either. */
static __attribute__((cold)) bool begin_zeros(struct stepaf_tcp_link *link,
                                              const struct stepaf_post *post)
{
    size_t most = 1;

    if (errno != EFAULT || link->zeros.base)
        return false;
    for (unsigned i = 0; i < post->n_xfer; i++)
        most = post->xfer[i].bytes > most ? post->xfer[i].bytes : most;
    void *base = mmap(NULL, most, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        errno = EFAULT; /* the reason for which the link is lost */
        return false;
    }
    link->zeros.base = base;
    link->zeros.bytes = most;
    return true;
}

void stepaf_tcp_end_zeros(struct stepaf_tcp_link *link)
{
    if (link->zeros.base)
        (void)munmap(link->zeros.base, link->zeros.bytes);
    link->zeros.base = NULL;
}

/* Abandon a post. The peer receives zeros, and is not notified. So this rank does not know when
 * they have arrived, and the next post may target the same place: it goes over the first
 * connection, behind the zeros. */
static __attribute__((cold)) void refuse_post(struct stepaf_tcp_link *link,
                                              struct stepaf_post *post)
{
    struct stepaf_upcalls *up = stepaf_tcp_of(link)->base.up;

    stepaf_tcp_end_zeros(link);
    link->current = NULL;
    link->whole = true;
    if (link->has_zerocopy)
        stepaf_tcp_zerocopy_hold(link, NULL);
    up->refused(up, post);
}

static void count_parts(struct stepaf_tcp_link *link, const struct stepaf_post *post)
{
    const struct stepaf_tcp *tcp = stepaf_tcp_of(link);
    uint32_t at;

    for (unsigned i = 0; i < post->n_xfer; i++)
        for (unsigned c = 1;
             stepaf_tcp_is_striped(tcp, link, &post->xfer[i]) && c < tcp->n_connections; c++)
            link->connections[c].parts_sent +=
                stepaf_tcp_piece(post->xfer[i].bytes, tcp->n_connections, c, &at);
}

/* Count a post that the socket has accepted completely. */
static void sent(struct stepaf_tcp_link *link, const struct stepaf_post *post)
{
    link->current = NULL;
    for (unsigned i = 0; i < post->n_xfer; i++)
        link->base.bytes_sent += post->xfer[i].bytes;
    link->base.messages_sent++;
    if (__builtin_expect(stepaf_tcp_of(link)->n_connections > 1, 0))
        count_parts(link, post);
}

/* Return whether a post continues over a broken link: the peer receives the reason only after
 * it. */
static bool is_last_frame(const struct stepaf_tcp_link *link, const struct stepaf_post *post)
{
    return link->unwritable && link->current == post;
}

static void tcp_post_one(struct stepaf_post *post)
{
    struct stepaf_tcp_link *link = (struct stepaf_tcp_link *)post->link;
    struct stepaf_tcp *tcp = stepaf_tcp_of(link);
    bool done = false;

    post->state = STEPAF_POST_SENT;
    if (__builtin_expect(link->base.dead || (link->broken && !is_last_frame(link, post)), 0))
        return; /* nobody will read it */
    if (__builtin_expect(!link->up, 0)) {
        post->state = STEPAF_POST_QUEUED;
        return;
    }
    if (__builtin_expect(!push_post(tcp, link, post, &done), 0) &&
        (!begin_zeros(link, post) || !push_post(tcp, link, post, &done))) {
        broken(link);
        return;
    }
    if (__builtin_expect(!done, 0)) {
        post->state = STEPAF_POST_QUEUED;
        return;
    }
    if (__builtin_expect(link->zeros.base != NULL, 0)) {
        refuse_post(link, post);
        return;
    }
    sent(link, post);
    if (__builtin_expect(link->has_zerocopy, 0))
        stepaf_tcp_zerocopy_hold(link, post);
}

unsigned stepaf_tcp_post(struct stepaf_post *const *posts, unsigned n)
{
    unsigned n_queued = 0;

    for (unsigned i = 0; i < n; i++) {
        tcp_post_one(posts[i]);
        n_queued += posts[i]->state == STEPAF_POST_QUEUED;
    }
    return n_queued;
}

void stepaf_tcp_push_tails(struct stepaf_tcp *tcp)
{
    for (unsigned p = 0; p < tcp->n_peers; p++) {
        struct stepaf_tcp_link *link = tcp->links[p];
        if (link && link->tail.bytes && (!link->broken || link->unwritable) && !push_tail(link))
            broken(link);
    }
}

bool stepaf_tcp_tell_unwritable(struct stepaf_tcp_link *link)
{
    const struct stepaf_tcp_head head = {.kind = STEPAF_TCP_UNWRITABLE};

    if (link->told || link->current || link->tail.bytes)
        return link->told;
    ssize_t sent = send(link->connections[0].fd, &head, sizeof(head), MSG_NOSIGNAL | MSG_DONTWAIT);
    link->told = sent >= 0 || (errno != EAGAIN && errno != EINTR && errno != ENOBUFS);
    return link->told;
}
