/* SPDX-License-Identifier: Apache-2.0 */
/* Links: connecting, sending, receiving. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "base/fork.h"
#include "base/time.h"
#include "toy.h"

enum { PACKETS = 16, MESSAGE_BYTES = offsetof(struct stepaf_msg, word) };

/* A name in the abstract namespace, where nothing stays behind. */
static socklen_t name_socket(struct sockaddr_un *address_p, uint64_t name, uint32_t peer)
{
    *address_p = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address_p->sun_path + 1, sizeof(address_p->sun_path) - 1,
                          "stepaf-toy-%016llx/%u", (unsigned long long)name, peer);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

bool stepaf_toy_socket(const struct stepaf_toy *toy, struct stepaf_toy_link *link, uint32_t peer)
{
    struct sockaddr_un address;
    socklen_t length = name_socket(&address, toy->name, peer);

    stepaf_fork_begin();
    link->fd = stepaf_fork_end(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (link->fd >= 0 && !bind(link->fd, (const struct sockaddr *)&address, length))
        return true;
    if (link->fd >= 0)
        stepaf_fork_close(link->fd);
    return false;
}

stepaf_status_t stepaf_toy_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason)
{
    struct stepaf_toy_link *link = &((struct stepaf_toy *)transport)->links[facts->peer];
    struct sockaddr_un address;
    socklen_t length = name_socket(&address, stepaf_unpack_u64(unpack), facts->index_at_peer);

    *link_p = NULL;
    link->token = stepaf_unpack_u64(unpack);
    if (unpack->failed)
        snprintf(reason, STEPAF_REASON_MAX, "its address is malformed");
    else if (facts->node_id != transport->up->topo->node_id)
        snprintf(reason, STEPAF_REASON_MAX, "on another node");
    else if (connect(link->fd, (const struct sockaddr *)&address, length))
        snprintf(reason, STEPAF_REASON_MAX, "its socket: %s", strerror(errno));
    else
        *link_p = &link->base;
    link->base = (struct stepaf_link){.transport = transport, .peer = facts->peer, .name = "toy"};
    link->used = *link_p != NULL;
    return STEPAF_OK;
}

void stepaf_toy_disconnect(struct stepaf_link *link)
{
    ((struct stepaf_toy_link *)link)->used = false;
}

static bool send_packet(struct stepaf_toy_link *link, uint64_t key, uint64_t offset,
                        const void *bytes, size_t n)
{
    struct stepaf_toy_head head = {link->token, key, offset};
    struct iovec iov[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)bytes, n}};
    struct msghdr packet = {.msg_iov = iov, .msg_iovlen = 2};

    ssize_t sent = sendmsg(link->fd, &packet, MSG_NOSIGNAL);
    link->broken = sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS;
    return sent >= 0;
}

/* Send post->xfer[post->at] from post->at_offset on. False if there is no room for all of it. */
static bool send_tensor(struct stepaf_toy_link *link, struct stepaf_post *post)
{
    const struct stepaf_transport *transport = link->base.transport;
    const struct stepaf_xfer *xfer = &post->xfer[post->at];
    const struct stepaf_toy_registration *own;

    while (post->at_offset < xfer->bytes) {
        uint32_t left = xfer->bytes - post->at_offset;
        uint32_t bytes = left < STEPAF_TOY_PIECE ? left : STEPAF_TOY_PIECE;
        own = xfer->src_mem->registration[transport->index];
        if (!own || (const struct stepaf_transport *)own->owner != transport) {
            transport->up->lost(transport->up, &link->base, "a source is not registered");
            return false;
        }
        if (!send_packet(link, ((const struct stepaf_toy_rmem *)xfer->dst)->key,
                         xfer->dst_offset + post->at_offset,
                         (const uint8_t *)xfer->src + post->at_offset, bytes))
            return false;
        link->base.bytes_sent += bytes;
        post->at_offset += bytes;
    }
    return true;
}

/* False: there is no room now. */
static bool send_post(struct stepaf_toy_link *link, struct stepaf_post *post)
{
    for (; post->at < post->n_xfer; post->at++, post->at_offset = 0)
        if (!send_tensor(link, post))
            return false;
    if (!send_packet(link, 0, 0, &post->msg,
                     MESSAGE_BYTES + post->msg.n_words * sizeof(post->msg.word[0])))
        return false;
    link->base.messages_sent++;
    return true;
}

unsigned stepaf_toy_post(struct stepaf_post *const *posts, unsigned n)
{
    unsigned n_queued = 0;

    for (unsigned i = 0; i < n; i++) {
        struct stepaf_toy_link *link = (struct stepaf_toy_link *)posts[i]->link;
        posts[i]->state = STEPAF_POST_SENT; /* also what nobody will read */
        if (link->base.dead || link->broken || send_post(link, posts[i]) || link->base.dead ||
            link->broken)
            continue;
        posts[i]->state = STEPAF_POST_QUEUED;
        n_queued++;
    }
    return n_queued;
}

/* Everything in a packet is the peer's word. False: it makes no sense. */
static bool take_message(struct stepaf_toy_link *link, const uint8_t *bytes, size_t n)
{
    struct stepaf_upcalls *up = link->base.transport->up;
    struct stepaf_msg msg = {0};

    if (n < MESSAGE_BYTES || n > sizeof(msg))
        return false;
    memcpy(&msg, bytes, n);
    if (msg.n_words != (n - MESSAGE_BYTES) / sizeof(msg.word[0]) ||
        msg.type >= STEPAF_MSG_TRANSPORT)
        return false;
    up->deliver(up, &link->base, &msg);
    return true;
}

static bool take_piece(struct stepaf_toy *toy, const struct stepaf_toy_head *head, size_t n)
{
    const struct stepaf_toy_registration *registration = toy->registrations;
    struct stepaf_upcalls *up = toy->base.up;

    while (registration && registration->key != head->key)
        registration = registration->next;
    uint8_t *place =
        registration ? up->resolve(up, registration->id, head->offset, (uint32_t)n).at : NULL;
    if (place)
        memcpy(place, toy->piece, n);
    return place != NULL;
}

static unsigned receive(struct stepaf_toy *toy, struct stepaf_toy_link *link)
{
    struct stepaf_upcalls *up = toy->base.up;
    struct stepaf_toy_head head;
    struct iovec iov[2] = {{&head, sizeof(head)}, {toy->piece, sizeof(toy->piece)}};
    struct msghdr packet = {.msg_iov = iov, .msg_iovlen = 2};
    unsigned n = 0;

    while (n < PACKETS && !link->base.dead) {
        ssize_t got = recvmsg(link->fd, &packet, 0);
        if (got < 0 && link->broken)
            up->lost(up, &link->base, "its socket is gone");
        if (got < 0)
            break;
        bool good = (size_t)got >= sizeof(head) && head.token == toy->token;
        size_t bytes = (size_t)got - sizeof(head);
        if (good && head.key)
            good = take_piece(toy, &head, bytes);
        else if (good && bytes)
            good = take_message(link, toy->piece, bytes);
        up->dropped_malformed += !good;
        n++;
    }
    return n;
}

unsigned stepaf_toy_progress(struct stepaf_transport *transport, unsigned polls)
{
    struct stepaf_toy *toy = (struct stepaf_toy *)transport;
    unsigned n = 0;

    while (true) {
        for (uint32_t p = 0; p < toy->n_peers; p++)
            if (toy->links[p].used && !toy->links[p].base.dead)
                n += receive(toy, &toy->links[p]);
        if (n || !--polls)
            return n;
        transport->up->polled = stepaf_ticks();
    }
}

/* To a socket that is gone not even an empty packet can be sent. */
void stepaf_toy_check_peers(struct stepaf_transport *transport)
{
    struct stepaf_toy *toy = (struct stepaf_toy *)transport;

    for (uint32_t p = 0; p < toy->n_peers; p++)
        if (toy->links[p].used && !toy->links[p].broken)
            (void)send_packet(&toy->links[p], 0, 0, NULL, 0);
}
