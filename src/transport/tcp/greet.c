/* SPDX-License-Identifier: Apache-2.0 */
/* The greeting, on both sides: hello, challenge, answer, welcome (wire.h). Neither side trusts the
 * other before a proof over the nonces of this connection has arrived. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/proof.h"
#include "base/why.h"
#include "transport/tcp/tcp.h"

_Static_assert(sizeof(struct stepaf_tcp_challenge) <=
                   STEPAF_MAX_TENSORS * sizeof(struct stepaf_tcp_descriptor),
               "greetings that come in pieces are held where heads are");

const char stepaf_tcp_shown_out[] = "it has closed the connection without an answer";

static struct stepaf_claim claim_of(const struct stepaf_tcp_connection *connection, uint64_t kind)
{
    bool initiates = stepaf_tcp_of(connection->link)->base.up->initiates;
    struct stepaf_claim claim = {.kind = kind,
                                 .slot = initiates ? connection->link->slot
                                                   : connection->link->base.peer,
                                 .part = connection->index};

    memcpy(claim.opener, connection->opener, sizeof(claim.opener));
    if (kind != stepaf_tcp_hello_magic)
        memcpy(claim.listener, connection->listener, sizeof(claim.listener));
    return claim;
}

/* Find the secrets of the opener and of the listener. */
static void secrets_of(const struct stepaf_tcp_link *link, const uint64_t **opener_p,
                       const uint64_t **listener_p)
{
    const struct stepaf_tcp *tcp = stepaf_tcp_of(link);
    bool initiates = tcp->base.up->initiates;

    *opener_p = initiates ? tcp->secret : link->secret;
    *listener_p = initiates ? link->secret : tcp->secret;
}

static void prove(const struct stepaf_tcp_connection *connection, uint64_t kind, uint8_t *proof_p)
{
    struct stepaf_claim claim = claim_of(connection, kind);
    const uint64_t *opener, *listener;

    secrets_of(connection->link, &opener, &listener);
    stepaf_claim_prove(opener, listener, &claim, proof_p);
}

static bool is_proven(const struct stepaf_tcp_connection *connection, uint64_t kind,
                      const uint8_t *proof)
{
    struct stepaf_claim claim = claim_of(connection, kind);
    const uint64_t *opener, *listener;

    secrets_of(connection->link, &opener, &listener);
    return stepaf_claim_is_proven(opener, listener, &claim, proof);
}

/* Send a greeting message. Greetings are short, and the first data on a connection: the socket
 * accepts a message as a whole. */
static bool say(int fd, const void *message, size_t bytes)
{
    ssize_t sent = send(fd, message, bytes, MSG_NOSIGNAL);

    if (sent >= 0 && sent < (ssize_t)bytes)
        errno = EPROTO;
    return sent == (ssize_t)bytes;
}

/* Receive a message, possibly in several pieces. Return 1 when it is complete; 0: more is to
 * arrive, or a deadline passes; -1: it will not arrive, with errno, which is 0 if the other side
 * has closed. */
static int hear_whole(struct stepaf_tcp_connection *connection, void *message_p, size_t bytes)
{
    ssize_t got = recv(connection->fd, connection->held + connection->frame.have,
                       bytes - connection->frame.have, 0);

    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (got == 0) {
        errno = 0;
        return -1;
    }
    connection->frame.have = (uint8_t)(connection->frame.have + got);
    if (connection->frame.have < bytes)
        return 0;
    connection->frame.have = 0;
    memcpy(message_p, connection->held, bytes);
    return 1;
}

bool stepaf_tcp_greet(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_hello hello = {.magic = stepaf_tcp_hello_magic,
                                     .slot = connection->link->slot,
                                     .connection = connection->index};

    connection->frame.have = 0;
    if (stepaf_claim_draw(connection->opener))
        return false;
    memcpy(hello.nonce, connection->opener, sizeof(hello.nonce));
    prove(connection, stepaf_tcp_hello_magic, hello.proof);
    return say(connection->fd, &hello, sizeof(hello));
}

/* A listener that is short of slots resets a stranger's connection whose hello it has not read:
 * that connection may be tried again. */
static const char *why_ended(void)
{
    bool is_shown_out = !errno || errno == ECONNRESET || errno == EPIPE;

    return is_shown_out ? stepaf_tcp_shown_out : stepaf_why(errno);
}

const char *stepaf_tcp_take_challenge(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_answer answer = {.magic = stepaf_tcp_answer_magic};
    struct stepaf_tcp_challenge challenge;
    int heard = hear_whole(connection, &challenge, sizeof(challenge));

    if (heard <= 0)
        return !heard ? NULL : why_ended();
    memcpy(connection->listener, challenge.nonce, sizeof(challenge.nonce));
    if (challenge.magic != stepaf_tcp_challenge_magic ||
        !is_proven(connection, stepaf_tcp_challenge_magic, challenge.proof))
        return "another program answers there";
    prove(connection, stepaf_tcp_answer_magic, answer.proof);
    if (!say(connection->fd, &answer, sizeof(answer)))
        return why_ended();
    connection->state = STEPAF_TCP_ANSWERED;
    return NULL;
}

const char *stepaf_tcp_take_welcome(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_answer welcome;
    int heard = hear_whole(connection, &welcome, sizeof(welcome));

    if (heard <= 0)
        return !heard ? NULL : why_ended();
    if (welcome.magic != stepaf_tcp_welcome_magic ||
        !is_proven(connection, stepaf_tcp_welcome_magic, welcome.proof))
        return "another program answers there";
    stepaf_tcp_connection_up(connection);
    return NULL;
}

/* Return the connection that the stranger's hello names; NULL if it cannot be that one. */
static struct stepaf_tcp_connection *recognize_stranger(struct stepaf_tcp *tcp,
                                                        const struct stepaf_tcp_hello *hello)
{
    struct stepaf_tcp_connection *connection, claimed;
    struct stepaf_tcp_link *link;

    if (hello->magic != stepaf_tcp_hello_magic || hello->slot >= tcp->n_peers ||
        hello->connection >= tcp->n_connections)
        return NULL;
    link = tcp->links[hello->slot];
    if (!link || link->base.dead)
        return NULL;
    connection = &link->connections[hello->connection];
    if (connection->state == STEPAF_TCP_UP || (connection->fd < 0 && link->up))
        return NULL;
    claimed = (struct stepaf_tcp_connection){.link = link, .index = connection->index};
    memcpy(claimed.opener, hello->nonce, sizeof(hello->nonce));
    return is_proven(&claimed, stepaf_tcp_hello_magic, hello->proof) ? connection : NULL;
}

/* A hello can be a copy: a later connection with another hello takes the place, as the peer itself
 * does when it tries again. */
bool stepaf_tcp_admit(struct stepaf_tcp *tcp, const struct stepaf_tcp_hello *hello, int fd)
{
    struct stepaf_tcp_connection *connection = recognize_stranger(tcp, hello);
    struct stepaf_tcp_challenge challenge = {.magic = stepaf_tcp_challenge_magic};
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = connection};

    if (!connection) {
        stepaf_log_info("tcp: rejected a connection that does not know this job's secret");
        return false;
    }
    stepaf_tcp_connection_close(connection);
    connection->frame.have = 0;
    memcpy(connection->opener, hello->nonce, sizeof(hello->nonce));
    if (stepaf_claim_draw(connection->listener))
        return false;
    memcpy(challenge.nonce, connection->listener, sizeof(challenge.nonce));
    prove(connection, stepaf_tcp_challenge_magic, challenge.proof);
    if (!say(fd, &challenge, sizeof(challenge)) ||
        epoll_ctl(tcp->epoll_fd, EPOLL_CTL_MOD, fd, &event))
        return false;
    connection->fd = fd;
    connection->state = STEPAF_TCP_GREETING;
    return true;
}

void stepaf_tcp_take_answer(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_answer answer, welcome = {.magic = stepaf_tcp_welcome_magic};
    int heard = hear_whole(connection, &answer, sizeof(answer));

    if (!heard)
        return;
    if (heard > 0 && answer.magic == stepaf_tcp_answer_magic &&
        is_proven(connection, stepaf_tcp_answer_magic, answer.proof)) {
        prove(connection, stepaf_tcp_welcome_magic, welcome.proof);
        if (say(connection->fd, &welcome, sizeof(welcome))) {
            stepaf_tcp_connection_up(connection);
            return;
        }
    }
    stepaf_tcp_connection_close(connection); /* the place is free for the peer itself */
}
