/* SPDX-License-Identifier: Apache-2.0 */
/* TCP between nodes without RDMA.
 *
 * FFN ranks listen, attention ranks connect. A link to a peer is one connection or several. A post
 * is one vectored send directly from the tensors. A payload is received directly into the
 * registered buffer, except for its first few KiB, which arrive with the frame's head in one call.
 * The transport buffers nothing: what the socket does not accept stays with the core, as QUEUED,
 * and the link records how far it got.
 *
 * The listener exists only until all peers have connected. */
#ifndef STEPAF_TRANSPORT_TCP_TCP_H
#define STEPAF_TRANSPORT_TCP_TCP_H

#include <stepaf/plan.h>

#include "base/tcp_watch.h"
#include "transport/tcp/address.h"
#include "transport/tcp/copiers.h"
#include "transport/tcp/wire.h"
#include "transport/transport.h"

enum {
    STEPAF_TCP_CONNECTIONS_MAX = 8,
    STEPAF_TCP_SCRATCH_BYTES = 8192, /* of one receive, beyond the bytes that go to their place */
    STEPAF_TCP_HELD_POSTS = 8,       /* of a link, whose pages the kernel may still read */
    STEPAF_TCP_ZEROCOPY_SENDS = 64,  /* of a connection, that the kernel may still read for */
    STEPAF_TCP_DIRECT = 2,           /* connections: up to here each is polled; beyond, epoll is */
    STEPAF_TCP_SPACED_BYTES = 4096,  /* payloads from this size on are aligned */
    STEPAF_TCP_SHARED_BYTES = 16384, /* copies from this size on are worth another thread */
    /* Head, descriptors, payloads and message of a frame, with padding; on other connections a head
     * and padding for every payload. */
    STEPAF_TCP_IOVECS = 3 * STEPAF_MAX_TENSORS + 4
};

/* The object of an epoll event. First member of each such object. */
enum stepaf_tcp_watched { STEPAF_TCP_LISTENER, STEPAF_TCP_STRANGER, STEPAF_TCP_CONNECTION };

enum stepaf_tcp_state {
    STEPAF_TCP_CLOSED,     /* not yet, or no longer open */
    STEPAF_TCP_CONNECTING, /* the kernel is connecting */
    STEPAF_TCP_GREETING,   /* hello sent, awaiting challenge; or challenge sent, awaiting answer */
    STEPAF_TCP_ANSWERED,   /* answer sent, awaiting welcome */
    STEPAF_TCP_UP
};

/* What arrives next on a connection. */
enum stepaf_tcp_phase {
    STEPAF_TCP_AT_HEAD,
    STEPAF_TCP_AT_DESCRIPTORS,
    STEPAF_TCP_AT_PAYLOAD,
    STEPAF_TCP_AT_TAIL,
    STEPAF_TCP_AT_WORDS,
    STEPAF_TCP_AT_PARTS /* everything has arrived except PARTs on other connections */
};

struct stepaf_tcp_link;

struct stepaf_tcp_connection {
    uint8_t watched; /* stepaf_tcp_watched */
    uint8_t index;
    uint8_t state; /* stepaf_tcp_state */
    struct {
        uint8_t phase; /* stepaf_tcp_phase */
        uint8_t kind;
        uint8_t n_xfer;
        uint8_t at;      /* the payload that is arriving */
        bool spoiled;    /* a payload of it had no place: its message is dropped */
        bool exact;      /* it has PARTs: read nothing beyond it before they arrive */
        uint8_t have;    /* bytes in held */
        bool spaced;     /* it has padding */
        uint8_t at_byte; /* of it, since the last padding; modulo STEPAF_TCP_ALIGN */
        uint8_t skip;    /* bytes of padding that come first */
        bool lent;       /* place is the caller's memory, and may be unmapped */
    } frame;             /* that is arriving */
    struct stepaf_tcp_watch watch;
    int fd;                       /* -1: none */
    uint32_t left;                /* bytes of the payload still to arrive */
    uint32_t parts_before, parts; /* on other connections up to the last frame, and this one */
    struct {
        bool any;
        uint32_t first, last;
    } bad; /* numbers of PARTs without a place here, whose messages are still to arrive; if more
            * than two, those between are treated the same */
    uint8_t *place; /* where they go; NULL: nowhere */
    struct stepaf_tcp_link *link;
    uint64_t sent; /* bytes sent of the current post's share */
    /* Bytes of tensors in PARTs of posts that are sent; the rest of the link's bytes went over the
     * first connection. */
    uint64_t parts_sent;
    uint64_t came; /* ticks: its last PART, or message with PARTs; only if held_up is set */
    struct {
        uint32_t sends; /* ever; the kernel counts them too */
        uint32_t freed; /* of those, from the first on, no longer used by the kernel */
        uint64_t ahead; /* bit i: number freed + i is released too */
    } zerocopy;
    struct stepaf_msg msg;
    union {
        struct stepaf_tcp_descriptor descriptors[STEPAF_MAX_TENSORS];
        struct { /* of the greeting, until the connection is up */
            uint64_t opener[STEPAF_CLAIM_NONCE_WORDS];
            uint64_t listener[STEPAF_CLAIM_NONCE_WORDS];
        };
    };
    /* of an incomplete head */
    uint8_t held[STEPAF_MAX_TENSORS * sizeof(struct stepaf_tcp_descriptor)];
};

/* A post that is sent, whose tensors the kernel may still read. */
struct stepaf_tcp_held_post {
    struct stepaf_post *post;                  /* NULL: forgotten */
    uint32_t upto[STEPAF_TCP_CONNECTIONS_MAX]; /* sends of each connection */
};

/* A peer's addresses, and the failure of the first. */
struct stepaf_tcp_tries {
    struct stepaf_net_addresses addresses;
    char trouble[STEPAF_TCP_ADDRESS_TEXT + 64];
};

struct stepaf_tcp_link {
    struct stepaf_link base;
    bool same_host;  /* the peer runs under the same kernel */
    bool up;         /* all connections are up */
    bool opening;    /* counted in tcp->count.opening */
    bool broken;     /* a send has failed, one of several connections has ended, or the link is
                      * unwritable; counted in tcp->count.broken, the reason is in trouble */
    bool unwritable; /* memory of this rank cannot be written: nothing is delivered any more */
    bool told;       /* and the peer has been notified */
    uint8_t n_up;    /* connections that are up */
    struct {
        uint8_t at; /* of these bytes, sent */
        uint8_t bytes;
        uint8_t data[STEPAF_MSG_WORDS * 4 + sizeof(struct stepaf_tcp_tail) + STEPAF_TCP_ALIGN];
    } tail;            /* of a message that the socket has accepted in part */
    bool zerocopy;     /* large tensors are sent without a copy */
    bool has_zerocopy; /* some of the current post's were */
    bool whole;        /* nothing is striped any more */
    uint8_t first_held;
    uint8_t n_held;
    struct stepaf_tcp_held_post held[STEPAF_TCP_HELD_POSTS]; /* a ring */
    const struct stepaf_post *current;                       /* the post that is sent in part */
    struct {
        void *base; /* sent instead of its tensors, which cannot be read; NULL: they can */
        size_t bytes;
    } zeros;
    uint32_t tx_parts; /* PARTs on every other connection, including current */
    uint32_t rx_parts[STEPAF_TCP_CONNECTIONS_MAX]; /* that have arrived */
    uint64_t secret[STEPAF_CLAIM_SECRET_WORDS];    /* of the peer */
    uint32_t slot;                                 /* this rank's index among the peer's peers */
    struct {
        struct stepaf_tcp_tries *theirs; /* NULL once up */
        unsigned trying;                 /* index of the address being tried */
        unsigned calls;                  /* of all connections, ever */
        uint16_t port;
        uint8_t shown_out;                      /* times the listener closed early, at this
                                                 * address */
        uint64_t redial_at;                     /* when to redial closed connections, ticks */
        uint64_t try_until;                     /* ticks */
    } dial;                                     /* only where this side connects */
    char trouble[STEPAF_TCP_ADDRESS_TEXT + 64]; /* with the last address tried; or why the link
                                                 * is broken */
    uint64_t heard; /* ticks: last arrival if broken; start if unwritable */
    struct stepaf_tcp_connection connections[]; /* tcp->n_connections */
};

/* An accepted connection whose peer is not known yet. */
struct stepaf_tcp_stranger {
    uint8_t watched;
    int fd; /* -1: free */
    uint32_t got;
    uint64_t until; /* ticks */
    struct stepaf_tcp_hello hello;
};

struct stepaf_tcp {
    struct stepaf_transport base;
    int epoll_fd;
    unsigned n_peers;
    unsigned n_connections; /* of a link */
    struct {
        unsigned links;
        unsigned opening; /* links that are neither up nor dead */
        unsigned held;    /* posts, of all links */
        unsigned tails;   /* links with the end of a message still to send */
        unsigned broken;  /* links that are lost once all arrived data is taken in */
    } count;
    int refused_error; /* errno: why no connection can be accepted */
    bool agreed;       /* a peer without a link will get none */
    struct stepaf_tcp_connection *direct[STEPAF_TCP_DIRECT]; /* all that are up, if few */
    unsigned n_direct;                                       /* 0: poll epoll */
    unsigned at_stranger;
    struct stepaf_tcp_link **links; /* by peer; NULL: none */
    uint64_t secret[STEPAF_CLAIM_SECRET_WORDS];
    struct stepaf_net_addresses own;
    uint64_t kernel_id;  /* 0: unknown */
    uint64_t network_id; /* 0: unknown */
    struct {
        uint8_t watched;
        int fd; /* -1: none */
        uint16_t port;
        uint64_t refused_since; /* ticks; 0: the last one was accepted */
    } listener;
    uint64_t looked;   /* last check of the deadlines of opening links, ticks */
    uint64_t listened; /* last check for activity, ticks */
    uint64_t ticks_per_us;
    struct stepaf_tcp_stranger *strangers; /* accepted, unproven; NULL: never listened */
    unsigned n_strangers;
    struct {
        unsigned wanted;               /* threads, before they are started */
        struct stepaf_tcp_copiers *it; /* NULL: there are none */
        unsigned n_large;              /* connections at large payloads, in this poll */
        struct stepaf_tcp_connection *large[STEPAF_TCP_COPIES + 1];
    } copiers;
    uint8_t scratch[STEPAF_TCP_SCRATCH_BYTES];
};

extern const struct stepaf_transport_ops stepaf_tcp_ops;

/* link.c */
/* Mark a connection as up: it is made and proven. */
void stepaf_tcp_connection_up(struct stepaf_tcp_connection *connection);
void stepaf_tcp_connection_close(struct stepaf_tcp_connection *connection);
/* Close everything that a link has open. */
void stepaf_tcp_link_close(struct stepaf_tcp_link *link);
/* Tell the core, once, that the link is unusable. */
void stepaf_tcp_lost(struct stepaf_tcp_link *link, const char *reason);
/* Send nothing more, except the frame in flight over an unwritable link. Messages that the peer
 * sent before it left may still be in the sockets or in flight: they are taken in before the link
 * is lost. */
void stepaf_tcp_break(struct stepaf_tcp_link *link, const char *reason);

/* listen.c */
stepaf_status_t stepaf_tcp_listen(struct stepaf_tcp *tcp);
void stepaf_tcp_unlisten(struct stepaf_tcp *tcp);
/* Accept strangers; return how many. */
unsigned stepaf_tcp_accept(struct stepaf_tcp *tcp);
void stepaf_tcp_listen_to(struct stepaf_tcp *tcp, struct stepaf_tcp_stranger *stranger);
/* Close strangers that take too long. */
void stepaf_tcp_forget_strangers(struct stepaf_tcp *tcp, uint64_t now);

/* greet.c */
/* Begin the greeting on a connection that the kernel has made. Returns false, with errno, on
 * failure. */
bool stepaf_tcp_greet(struct stepaf_tcp_connection *connection);
/* Continue the greeting. Return NULL, or why the other end is not the peer. */
const char *stepaf_tcp_take_challenge(struct stepaf_tcp_connection *connection);
const char *stepaf_tcp_take_welcome(struct stepaf_tcp_connection *connection);
/* Reason: the listener has closed the connection, for example because it has too many strangers. It
 * may have space later. */
extern const char stepaf_tcp_shown_out[];
/* On the listener's side: use @a fd for the connection that its hello names. Returns false if there
 * is none such; then @a fd still belongs to the caller. */
bool stepaf_tcp_admit(struct stepaf_tcp *tcp, const struct stepaf_tcp_hello *hello, int fd);
void stepaf_tcp_take_answer(struct stepaf_tcp_connection *connection);

/* connect.c */
void stepaf_tcp_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack);
stepaf_status_t stepaf_tcp_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason);
void stepaf_tcp_disconnect(struct stepaf_link *link);
/* Advance a connection that is being made, after an event of the kernel. */
void stepaf_tcp_connection_advance(struct stepaf_tcp_connection *connection);
/* Give up addresses that take too long. */
void stepaf_tcp_tries_check(struct stepaf_tcp *tcp, uint64_t now);
/* Handle the end of a connection: nothing more will arrive. If its link is not up, the address is
 * unusable. */
void stepaf_tcp_connection_ended(struct stepaf_tcp_connection *connection, const char *reason);

/* finish.c */
stepaf_status_t stepaf_tcp_finish_connects(struct stepaf_transport *transport, int64_t deadline_ns,
                                           int wait_ms, uint32_t *peer_p, char *reason);
stepaf_status_t stepaf_tcp_reopen(struct stepaf_transport *transport);
void stepaf_tcp_shrink(struct stepaf_transport *transport);
/* Note that no link is opening any more. */
void stepaf_tcp_all_opened(struct stepaf_tcp *tcp);

/* socket.c */
/* Create a non-blocking socket, or accept one; return -1 with errno on failure. A child of fork()
 * inherits neither: else the peer would not notice the end of this process before the child ends as
 * well. */
int stepaf_tcp_socket(int family);
int stepaf_tcp_socket_accept(int listener);
void stepaf_tcp_socket_close(int fd);
/* Close a socket that epoll watches, and remove it from epoll. As long as a child that was just
 * forked has a copy, epoll would otherwise continue to report events for the socket, for an object
 * that may have been freed. */
void stepaf_tcp_socket_drop(struct stepaf_tcp *tcp, int fd);
/* Set the options of a socket that transfers frames. */
void stepaf_tcp_socket_tune(const struct stepaf_env *env, int fd);
/* Tune a socket whose other end is on this machine, over loopback, with a negligible round trip.
 * Nothing is shared with others on the way, so use the simplest congestion control. BBR, the
 * default of some systems, paces sends by timers and lets megabytes accumulate; then each byte
 * comes from memory instead of a cache. */
void stepaf_tcp_socket_near(int fd);
/* Shut down sending, and discard arriving data. Return whether everything sent has reached the
 * peer's host, or the peer does not want it: closing earlier could lose it. */
bool stepaf_tcp_socket_is_drained(int fd);
/* Return whether everything sent has reached the peer's host: closing with unread data would lose
 * the rest. */
bool stepaf_tcp_socket_is_through(int fd);

/* send.c */
unsigned stepaf_tcp_post(struct stepaf_post *const *posts, unsigned n);
/* Send the ends of messages that sockets have accepted in part. */
void stepaf_tcp_push_tails(struct stepaf_tcp *tcp);
/* Stop sending zeros in place of tensors that cannot be read. */
void stepaf_tcp_end_zeros(struct stepaf_tcp_link *link);
/* Notify the peer of an unwritable link, once. Returns false if that is not possible yet: a frame
 * is sent in part, or there is no space. */
bool stepaf_tcp_tell_unwritable(struct stepaf_tcp_link *link);

/* zerocopy.c */
/* Prepare a socket for sends without a copy. Returns false if the settings exclude that or the
 * socket cannot do it. */
bool stepaf_tcp_zerocopy_enable(const struct stepaf_env *env, int fd);
/* Hold a post that was sent in part without a copy: it is POSTED until the kernel no longer reads
 * it. NULL: a post that nobody waits for. */
void stepaf_tcp_zerocopy_hold(struct stepaf_tcp_link *link, struct stepaf_post *post);
/* Ask the kernel which sends are complete; return how many posts are SENT now. */
unsigned stepaf_tcp_zerocopy_reap(struct stepaf_tcp *tcp);
void stepaf_tcp_retire(struct stepaf_post *post);
/* The link closes: set its posts to SENT. */
void stepaf_tcp_zerocopy_drop(struct stepaf_tcp_link *link);

/* receive.c */
/* Take in what has arrived; return whether there was something. Without @a large, large payloads
 * are left to the end of this poll, when several are read at a time: see receive_large.c. */
unsigned stepaf_tcp_receive(struct stepaf_tcp_connection *connection, bool large);
/* Return whether the connection is at such a payload. */
bool stepaf_tcp_is_at_large(const struct stepaf_tcp_connection *connection);
/* Look up the place of the payload again, since its memory may have been released since the last
 * poll. Return NULL if there is none. */
uint8_t *stepaf_tcp_find_place(struct stepaf_tcp_connection *connection);
/* Process the result of a read of the payload to its place; return whether anything arrived. */
unsigned stepaf_tcp_take_copy(struct stepaf_tcp_connection *connection,
                              const struct stepaf_tcp_copy *copy);

/* receive_large.c: read large payloads that a poll has left; return on how many connections
 * something arrived. */
unsigned stepaf_tcp_receive_large(struct stepaf_tcp *tcp);

/* progress.c */
unsigned stepaf_tcp_progress(struct stepaf_transport *transport, unsigned polls);
/* While links open: advance them, and take in what has arrived; wait at most @a wait_ms. Return
 * whether there was something. */
unsigned stepaf_tcp_advance(struct stepaf_tcp *tcp, int wait_ms);
void stepaf_tcp_check_peers(struct stepaf_transport *transport);

static inline struct stepaf_tcp *stepaf_tcp_of(const struct stepaf_tcp_link *link)
{
    return (struct stepaf_tcp *)link->base.transport;
}

/* Return the bytes of connection @a index's piece of a tensor that goes over @a n connections;
 * *at_p: its offset. */
static inline uint32_t stepaf_tcp_piece(uint32_t bytes, unsigned n, unsigned index, uint32_t *at_p)
{
    uint32_t each = bytes / n / 64 * 64, first = bytes - each * (n - 1);

    *at_p = index ? first + (index - 1) * each : 0;
    return index ? each : first;
}

#endif
