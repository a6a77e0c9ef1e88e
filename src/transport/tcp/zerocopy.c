/* SPDX-License-Identifier: Apache-2.0 */
/* Send large tensors without a copy (MSG_ZEROCOPY; Documentation/networking/msg_zerocopy.rst of the
 * kernel). The pages stay in use until the kernel releases them, so the post stays POSTED. The
 * kernel numbers the sends of a connection and reports released sends as ranges of numbers on the
 * socket's error queue. It also reports when it has copied after all, as on a loopback: then this
 * method costs more than it saves, and the link stops using it. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <linux/errqueue.h> /* requires time.h before it */

#include "transport/tcp/tcp.h"

#ifndef SO_EE_CODE_ZEROCOPY_COPIED
#define SO_EE_CODE_ZEROCOPY_COPIED 1
#endif

enum { NOTES = 16 /* read in one call */ };

bool stepaf_tcp_zerocopy_enable(const struct stepaf_env *env, int fd)
{
    int yes = 1;

    return env->tcp_zerocopy != STEPAF_ENV_TCP_ZEROCOPY_off &&
           !setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &yes, sizeof(yes));
}

/* Mark numbers lo..hi as free. They arrive in order except for retransmissions; none is reported
 * twice. */
static void take_range(struct stepaf_tcp_connection *connection, uint32_t lo, uint32_t hi)
{
    for (uint32_t number = lo; (int32_t)(hi - number) >= 0; number++) {
        uint32_t ahead = number - connection->zerocopy.freed;
        if (ahead >= STEPAF_TCP_ZEROCOPY_SENDS)
            return; /* no number that is in use */
        connection->zerocopy.ahead |= 1ull << ahead;
    }
    while (connection->zerocopy.ahead & 1) {
        connection->zerocopy.ahead >>= 1;
        connection->zerocopy.freed++;
    }
}

/* Take one note of the error queue. Returns false if there is none. */
static bool take_note(struct stepaf_tcp_connection *connection)
{
    union {
        struct cmsghdr head;
        uint8_t room[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
    } control;
    struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof(control)};
    struct sock_extended_err note;

    if (recvmsg(connection->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
        return false;
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (!head || !((head->cmsg_level == SOL_IP && head->cmsg_type == IP_RECVERR) ||
                   (head->cmsg_level == SOL_IPV6 && head->cmsg_type == IPV6_RECVERR)))
        return true;
    memcpy(&note, CMSG_DATA(head), sizeof(note));
    if (note.ee_origin != SO_EE_ORIGIN_ZEROCOPY || note.ee_errno)
        return true;
    if (note.ee_code & SO_EE_CODE_ZEROCOPY_COPIED &&
        stepaf_tcp_of(connection->link)->base.up->env->tcp_zerocopy == STEPAF_ENV_TCP_ZEROCOPY_auto)
        connection->link->zerocopy = false;
    take_range(connection, note.ee_info, note.ee_data);
    return true;
}

/* Return whether the kernel is done with all of the post's sends. */
static bool is_free(const struct stepaf_tcp_link *link, const struct stepaf_tcp_held_post *held)
{
    for (unsigned i = 0; i < stepaf_tcp_of(link)->n_connections; i++)
        if ((int32_t)(link->connections[i].zerocopy.freed - held->upto[i]) < 0)
            return false;
    return true;
}

/* Release posts in the order in which they were sent. */
static unsigned let_go(struct stepaf_tcp_link *link, bool all)
{
    unsigned n = 0;

    while (link->n_held && (all || is_free(link, &link->held[link->first_held]))) {
        struct stepaf_post *post = link->held[link->first_held].post;
        if (post)
            post->state = STEPAF_POST_SENT;
        link->first_held = (uint8_t)((link->first_held + 1) % STEPAF_TCP_HELD_POSTS);
        link->n_held--;
        stepaf_tcp_of(link)->count.held--;
        n++;
    }
    return n;
}

void stepaf_tcp_zerocopy_hold(struct stepaf_tcp_link *link, struct stepaf_post *post)
{
    unsigned at = (link->first_held + link->n_held) % STEPAF_TCP_HELD_POSTS;

    link->held[at].post = post;
    for (unsigned i = 0; i < stepaf_tcp_of(link)->n_connections; i++)
        link->held[at].upto[i] = link->connections[i].zerocopy.sends;
    link->n_held++;
    stepaf_tcp_of(link)->count.held++;
    if (post)
        post->state = STEPAF_POST_POSTED;
}

void stepaf_tcp_retire(struct stepaf_post *post)
{
    struct stepaf_tcp_link *link = (struct stepaf_tcp_link *)post->link;

    for (unsigned i = 0; i < STEPAF_TCP_HELD_POSTS; i++)
        if (link->held[i].post == post)
            link->held[i].post = NULL;
}

unsigned stepaf_tcp_zerocopy_reap(struct stepaf_tcp *tcp)
{
    unsigned n = 0;

    for (unsigned p = 0; p < tcp->n_peers; p++) {
        struct stepaf_tcp_link *link = tcp->links[p];
        if (!link || !link->n_held)
            continue;
        for (unsigned i = 0; i < tcp->n_connections; i++)
            for (unsigned notes = 0;
                 notes < NOTES && link->connections[i].fd >= 0 && take_note(&link->connections[i]);
                 notes++)
                ;
        n += let_go(link, link->base.dead);
    }
    return n;
}

void stepaf_tcp_zerocopy_drop(struct stepaf_tcp_link *link)
{
    (void)let_go(link, true);
    link->zerocopy = false;
}
