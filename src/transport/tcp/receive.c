/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving: a payload directly to its place, and in the same call the data that follows it. Every
 * number is untrusted input: the core resolves each place, and malformed input ends the link. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/time.h"
#include "base/why.h"
#include "base/writable.h"
#include "transport/last_rail.h"
#include "transport/tcp/tcp.h"

enum { RECEIVES = 16 /* in one call: other connections must be served too */ };

static const char closed_by_peer[] = "it has closed the connection";

/* Bytes that have arrived and are not taken yet. */
struct input {
    const uint8_t *at;
    const uint8_t *end;
};

/* Take @a bytes bytes in one piece. Return NULL if they have not all arrived: the bytes so far are
 * kept. */
static const void *take_bytes(struct stepaf_tcp_connection *connection, struct input *input,
                              size_t bytes)
{
    size_t here = (size_t)(input->end - input->at);
    const uint8_t *from = input->at;

    if (__builtin_expect(!connection->frame.have && here >= bytes, 1)) {
        input->at += bytes;
        return from;
    }
    size_t more = bytes - connection->frame.have;
    more = more < here ? more : here;
    memcpy(connection->held + connection->frame.have, from, more);
    connection->frame.have = (uint8_t)(connection->frame.have + more);
    input->at += more;
    if (connection->frame.have < bytes)
        return NULL;
    connection->frame.have = 0;
    return connection->held;
}

static size_t wanted(const struct stepaf_tcp_connection *connection)
{
    switch (connection->frame.phase) {
    case STEPAF_TCP_AT_HEAD:
        return sizeof(struct stepaf_tcp_head);
    case STEPAF_TCP_AT_DESCRIPTORS:
        return connection->frame.n_xfer * sizeof(struct stepaf_tcp_descriptor);
    case STEPAF_TCP_AT_TAIL:
        return sizeof(struct stepaf_tcp_tail);
    case STEPAF_TCP_AT_WORDS:
        return connection->msg.n_words * sizeof(connection->msg.word[0]);
    default:
        return 0;
    }
}

/* Look up the place of the payload, or of the rest of it. */
static void resolve_place(struct stepaf_tcp_connection *connection)
{
    const struct stepaf_tcp_descriptor *it = &connection->descriptors[connection->frame.at];
    struct stepaf_upcalls *up = stepaf_tcp_of(connection->link)->base.up;

    if (connection->frame.spoiled)
        return;
    struct stepaf_target place = up->resolve(up, it->region, it->offset, it->bytes);
    connection->frame.lent = place.at && place.mem->lent;
    if (place.at) {
        connection->place = place.at + (it->bytes - connection->left);
    } else {
        connection->frame.spoiled = true;
        up->dropped_malformed++;
    }
}

uint8_t *stepaf_tcp_find_place(struct stepaf_tcp_connection *connection)
{
    connection->place = NULL;
    resolve_place(connection);
    return connection->place;
}

/* Skip padding: spaced data continues at a multiple, and so does the next frame. */
static void take_space(struct stepaf_tcp_connection *connection)
{
    connection->frame.skip = (uint8_t)stepaf_tcp_space(connection->frame.at_byte);
    connection->frame.at_byte = 0;
}

/* Count @a bytes more of the frame that have a place or are in flight to it. */
static void advance_frame(struct stepaf_tcp_connection *connection, size_t bytes)
{
    connection->frame.at_byte = (uint8_t)((connection->frame.at_byte + bytes) % STEPAF_TCP_ALIGN);
}

/* Finish a PART. */
static void end_part(struct stepaf_tcp_connection *connection)
{
    uint32_t number = ++connection->link->rx_parts[connection->index];

    if (__builtin_expect(stepaf_tcp_of(connection->link)->base.up->held_up != NULL, 0))
        connection->came = stepaf_ticks();
    if (connection->frame.spoiled) {
        connection->bad.first = connection->bad.any ? connection->bad.first : number;
        connection->bad.last = number;
        connection->bad.any = true;
    }
    if (!connection->frame.spaced) /* else the padding has been skipped already */
        take_space(connection);
    connection->frame.phase = STEPAF_TCP_AT_HEAD;
}

/* Start the next payload, or what follows the last one. */
static void next_payload(struct stepaf_tcp_connection *connection)
{
    for (; connection->frame.at < connection->frame.n_xfer; connection->frame.at++) {
        const struct stepaf_tcp_descriptor *it = &connection->descriptors[connection->frame.at];
        if (!it->bytes)
            continue;
        connection->frame.phase = STEPAF_TCP_AT_PAYLOAD;
        connection->left = it->bytes;
        advance_frame(connection, it->bytes);
        (void)stepaf_tcp_find_place(connection);
        return;
    }
    if (connection->frame.kind == STEPAF_TCP_FRAME)
        connection->frame.phase = STEPAF_TCP_AT_TAIL;
    else
        end_part(connection);
}

/* Finish a payload: all of it has arrived. */
static inline void end_payload(struct stepaf_tcp_connection *connection)
{
    connection->frame.at++;
    if (connection->frame.spaced)
        take_space(connection);
    next_payload(connection);
}

/* Return what is wrong with a head that begins neither a frame nor a PART. */
static const char *why_no_frame(const void *from)
{
    struct stepaf_tcp_head head;

    memcpy(&head, from, sizeof(head));
    return head.kind == STEPAF_TCP_UNWRITABLE ? stepaf_unwritable_peers
                                              : "it has sent a malformed frame";
}

static bool take_head(struct stepaf_tcp_connection *connection, const void *from)
{
    struct stepaf_tcp_head head;

    memcpy(&head, from, sizeof(head));
    bool is_part = head.kind == STEPAF_TCP_PART && head.n_xfer == 1 && connection->index;
    bool is_frame =
        head.kind == STEPAF_TCP_FRAME && head.n_xfer <= STEPAF_MAX_TENSORS && !connection->index;
    if ((!is_part && !is_frame) || head.layout > STEPAF_TCP_SPACED)
        return false;
    connection->frame.spaced = head.layout == STEPAF_TCP_SPACED;
    connection->frame.at_byte = 0;
    advance_frame(connection, sizeof(head) + head.n_xfer * sizeof(struct stepaf_tcp_descriptor));
    if (connection->frame.spaced && !head.n_xfer)
        take_space(connection);
    connection->frame.kind = head.kind;
    connection->frame.n_xfer = head.n_xfer;
    connection->frame.exact = is_frame && head.parts != connection->parts;
    connection->parts_before = connection->parts;
    connection->parts = head.parts;
    connection->frame.spoiled = false;
    connection->frame.at = 0;
    connection->frame.phase = head.n_xfer ? STEPAF_TCP_AT_DESCRIPTORS : STEPAF_TCP_AT_TAIL;
    return true;
}

static bool take_tail(struct stepaf_tcp_connection *connection, const void *from)
{
    struct stepaf_tcp_tail tail;

    memcpy(&tail, from, sizeof(tail));
    if (tail.n_words > STEPAF_MSG_WORDS)
        return false;
    memcpy(&connection->msg, &tail.head, sizeof(tail.head));
    connection->msg.seq = tail.seq;
    connection->msg.n_words = tail.n_words;
    advance_frame(connection, sizeof(tail) + tail.n_words * sizeof(connection->msg.word[0]));
    connection->frame.phase = STEPAF_TCP_AT_WORDS;
    if (__builtin_expect(connection->msg.type == STEPAF_TCP_VOID, 0))
        connection->frame.spoiled = true;
    return connection->msg.type <= STEPAF_TCP_VOID;
}

/* Return whether the pieces on other connections have arrived. */
static bool pieces_are_here(const struct stepaf_tcp_connection *connection)
{
    const struct stepaf_tcp_link *link = connection->link;
    unsigned n = stepaf_tcp_of(link)->n_connections;

    for (unsigned i = 1; i < n; i++)
        if ((int32_t)(link->rx_parts[i] - connection->parts) < 0)
            return false;
    return true;
}

/* Return whether one of the pieces had no place. */
static bool has_bad_part(const struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_link *link = connection->link;
    bool bad = false;

    for (unsigned i = 1; i < stepaf_tcp_of(link)->n_connections; i++) {
        struct stepaf_tcp_connection *other = &link->connections[i];
        if (!other->bad.any || (int32_t)(connection->parts - other->bad.first) < 0)
            continue;
        bad = bad || (int32_t)(other->bad.last - connection->parts_before) > 0;
        other->bad.any = (int32_t)(other->bad.last - connection->parts) > 0;
    }
    return bad;
}

/* Report which connection was the last with its share of the message. */
static void tell_last_connection(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_link *link = connection->link;
    unsigned n = stepaf_tcp_of(link)->n_connections;
    uint64_t came[STEPAF_TCP_CONNECTIONS_MAX];

    for (unsigned i = 0; i < n; i++)
        came[i] = link->connections[i].came;
    stepaf_tell_last_rail(&link->base, &connection->msg, 0, came, n);
}

/* Return whether the message has arrived with all its pieces; then it is about to be taken. */
static bool take_pieces(struct stepaf_tcp_connection *connection)
{
    bool are_here = pieces_are_here(connection);

    if (!stepaf_tcp_of(connection->link)->base.up->held_up || connection->frame.spoiled)
        return are_here;
    if (connection->frame.phase != STEPAF_TCP_AT_PARTS)
        connection->came = stepaf_ticks();
    if (are_here)
        tell_last_connection(connection);
    return are_here;
}

static bool finish(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_link *link = connection->link;
    struct stepaf_upcalls *up = stepaf_tcp_of(link)->base.up;

    if (connection->frame.exact && !take_pieces(connection)) {
        connection->frame.phase = STEPAF_TCP_AT_PARTS;
        return false;
    }
    if (connection->frame.exact && has_bad_part(connection))
        connection->frame.spoiled = true;
    connection->frame.exact = false;
    take_space(connection);
    connection->frame.phase = STEPAF_TCP_AT_HEAD;
    if (!connection->frame.spoiled && __builtin_expect(!link->unwritable, 1))
        up->deliver(up, &link->base, &connection->msg);
    return true;
}

/* Handle a payload whose place cannot be written. The rest of the frame is discarded, and the link
 * ends: nothing after the frame is delivered. */
static __attribute__((cold)) void has_no_pages(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp_link *link = connection->link;

    connection->place = NULL;
    connection->frame.spoiled = true;
    if (link->unwritable)
        return;
    if (link->broken || !link->up) { /* so the peer cannot be notified */
        stepaf_tcp_lost(link, stepaf_unwritable_own);
        return;
    }
    link->unwritable = true;
    stepaf_tcp_break(link, stepaf_unwritable_own);
}

/* Copy the arrived bytes of the payload to their place. */
static void take_payload(struct stepaf_tcp_connection *connection, struct input *input)
{
    size_t here = (size_t)(input->end - input->at);
    uint32_t bytes = here < connection->left ? (uint32_t)here : connection->left;

    if (connection->place && connection->frame.lent &&
        __builtin_expect(!stepaf_is_writable(connection->place, bytes), 0))
        has_no_pages(connection);
    if (connection->place) {
        memcpy(connection->place, input->at, bytes);
        connection->place += bytes;
    }
    input->at += bytes;
    connection->left -= bytes;
}

/* Skip padding; returns false if more of it is still to arrive. */
static bool pass_space(struct stepaf_tcp_connection *connection, struct input *input)
{
    size_t here = (size_t)(input->end - input->at);
    uint8_t bytes = here < connection->frame.skip ? (uint8_t)here : connection->frame.skip;

    input->at += bytes;
    connection->frame.skip = (uint8_t)(connection->frame.skip - bytes);
    return !connection->frame.skip;
}

/* Process the input as far as possible. Return NULL, or what is wrong with it. */
static const char *digest(struct stepaf_tcp_connection *connection, struct input *input)
{
    while (!connection->link->base.dead) {
        const void *from = NULL;
        if (connection->frame.skip && !pass_space(connection, input))
            return NULL;
        if (connection->frame.phase == STEPAF_TCP_AT_PAYLOAD) {
            take_payload(connection, input);
            if (connection->left)
                return NULL;
            end_payload(connection);
            continue;
        }
        if (connection->frame.phase == STEPAF_TCP_AT_PARTS) {
            if (!finish(connection))
                return NULL;
            continue;
        }
        from = take_bytes(connection, input, wanted(connection));
        if (!from)
            return NULL;
        switch (connection->frame.phase) {
        case STEPAF_TCP_AT_HEAD:
            if (!take_head(connection, from))
                return why_no_frame(from);
            break;
        case STEPAF_TCP_AT_DESCRIPTORS:
            memcpy(connection->descriptors, from, wanted(connection));
            if (connection->frame.spaced)
                take_space(connection);
            next_payload(connection);
            break;
        case STEPAF_TCP_AT_TAIL:
            if (!take_tail(connection, from))
                return "it has sent a malformed message";
            break;
        default:
            memcpy(connection->msg.word, from, wanted(connection));
            /* only a tensor too small for PARTs lets more arrive with it */
            if (!finish(connection))
                return input->at == input->end ? NULL : "it has sent a malformed frame";
        }
    }
    return NULL;
}

/* Read once: the rest of the payload to its place, and what follows to the scratch buffer, if it
 * may be read already. Returns like recv. */
static ssize_t read_some(struct stepaf_tcp_connection *connection, uint8_t *scratch,
                         struct input *input_p, bool *full_p)
{
    struct iovec iov[2];
    struct msghdr message = {.msg_iov = iov};
    size_t direct = connection->place && connection->frame.phase == STEPAF_TCP_AT_PAYLOAD &&
                            !connection->frame.skip
                        ? connection->left
                        : 0;
    size_t beyond = STEPAF_TCP_SCRATCH_BYTES;

    if (__builtin_expect(connection->frame.exact, 0))
        beyond = connection->frame.phase == STEPAF_TCP_AT_PAYLOAD
                     ? 0
                     : wanted(connection) - connection->frame.have;
    if (connection->frame.exact && !direct && connection->frame.phase == STEPAF_TCP_AT_PAYLOAD)
        beyond = connection->left < STEPAF_TCP_SCRATCH_BYTES ? connection->left
                                                             : STEPAF_TCP_SCRATCH_BYTES;
    if (connection->frame.exact && connection->frame.skip)
        beyond = connection->frame.skip;
    if (direct > STEPAF_TCP_READ_BYTES) {
        direct = STEPAF_TCP_READ_BYTES;
        beyond = 0;
    }
    if (direct)
        iov[message.msg_iovlen++] = (struct iovec){connection->place, direct};
    if (beyond)
        iov[message.msg_iovlen++] = (struct iovec){scratch, beyond};
    ssize_t got = recvmsg(connection->fd, &message, MSG_DONTWAIT);
    if (got <= 0)
        return got;
    size_t placed = (size_t)got < direct ? (size_t)got : direct;
    connection->left -= (uint32_t)placed;
    if (placed)
        connection->place += placed;
    *input_p = (struct input){scratch, scratch + ((size_t)got - placed)};
    *full_p = (size_t)got == direct + beyond;
    return got;
}

bool stepaf_tcp_is_at_large(const struct stepaf_tcp_connection *connection)
{
    return connection->frame.phase == STEPAF_TCP_AT_PAYLOAD && connection->place &&
           !connection->frame.skip && connection->left >= STEPAF_TCP_SHARED_BYTES;
}

/* Leave a large payload to the end of this poll (receive_large.c). Returns false if there is no
 * space. */
static bool leave_large(struct stepaf_tcp_connection *connection)
{
    struct stepaf_tcp *tcp = stepaf_tcp_of(connection->link);

    for (unsigned i = 0; i < tcp->copiers.n_large; i++)
        if (tcp->copiers.large[i] == connection)
            return true;
    if (tcp->copiers.n_large == sizeof(tcp->copiers.large) / sizeof(tcp->copiers.large[0]))
        return false;
    tcp->copiers.large[tcp->copiers.n_large++] = connection;
    return true;
}

unsigned stepaf_tcp_receive(struct stepaf_tcp_connection *connection, bool large)
{
    struct stepaf_tcp_link *link = connection->link;
    struct stepaf_upcalls *up = stepaf_tcp_of(link)->base.up;
    uint8_t *scratch = stepaf_tcp_of(link)->scratch;
    struct input input = {scratch, scratch};
    bool more = true;
    unsigned n = 0;

    if (connection->frame.phase == STEPAF_TCP_AT_PAYLOAD && connection->place)
        (void)stepaf_tcp_find_place(connection);
    if (connection->frame.phase == STEPAF_TCP_AT_PARTS && pieces_are_here(connection)) {
        (void)finish(connection);
        n++;
    }
    while (more && n < RECEIVES && connection->frame.phase != STEPAF_TCP_AT_PARTS &&
           !link->base.dead) {
        if (__builtin_expect(!large, 0) && stepaf_tcp_is_at_large(connection) &&
            leave_large(connection))
            break;
        ssize_t got = read_some(connection, scratch, &input, &more);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return n;
        if (got < 0 && errno == EFAULT && connection->place) {
            has_no_pages(connection);
            continue;
        }
        if (got <= 0) {
            stepaf_tcp_connection_ended(connection, got ? stepaf_why(errno) : closed_by_peer);
            return n + 1;
        }
        /* Other connections may have been served for long since the last timestamp: the sender may
         * have begun after it. */
        up->polled = stepaf_ticks();
        const char *trouble = digest(connection, &input);
        if (trouble)
            stepaf_tcp_lost(link, trouble);
        n++;
    }
    return n;
}

unsigned stepaf_tcp_take_copy(struct stepaf_tcp_connection *connection,
                              const struct stepaf_tcp_copy *copy)
{
    struct stepaf_tcp_link *link = connection->link;
    bool failed = copy->error && copy->error != EAGAIN && copy->error != EINTR;

    if (link->base.dead || connection->fd < 0) /* because of data on another connection */
        return 0;
    if (copy->bytes) {
        stepaf_tcp_of(link)->base.up->polled = stepaf_ticks();
        connection->place += copy->bytes;
        connection->left -= (uint32_t)copy->bytes;
        if (!connection->left)
            end_payload(connection);
    }
    if (failed && copy->error == EFAULT)
        has_no_pages(connection);
    else if (failed || copy->over)
        stepaf_tcp_connection_ended(connection, failed ? stepaf_why(copy->error) : closed_by_peer);
    return copy->bytes || failed || copy->over;
}
