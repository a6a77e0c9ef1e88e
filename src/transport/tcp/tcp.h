/* SPDX-License-Identifier: Apache-2.0 */
/* TCP between nodes without RDMA.
 *
 * FFN ranks listen, attention ranks connect: one link to a peer is one connection or several. A
 * post is one vectored send straight from the tensors; a payload is received straight into the
 * registered buffer, but for its first few KiB, which come with the frame's head in one call.
 * Nothing is buffered here: what the socket does not take stays with the core, as QUEUED, and the
 * link knows how far it got.
 *
 * The listener is there only until all peers have connected. */
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
    STEPAF_TCP_SCRATCH_BYTES = 8192, /* of one receive, beyond what goes to its place */
    STEPAF_TCP_HELD_POSTS = 8,       /* of a link, whose pages the kernel may still read */
    STEPAF_TCP_ZEROCOPY_SENDS = 64,  /* of a connection, that it may still read for */
    STEPAF_TCP_DIRECT = 2,           /* connections: up to here each is asked; beyond, epoll is */
    STEPAF_TCP_SPACED_BYTES = 4096,  /* payloads from here on are worth a place of their own */
    STEPAF_TCP_SHARED_BYTES = 16384, /* copies from here on are worth another thread's attention */
    /* Head, descriptors, payloads and message of a frame, with spaces; on other connections a head
     * and a space for every payload. */
    STEPAF_TCP_IOVECS = 3 * STEPAF_MAX_TENSORS + 4
};

/* What an epoll event is about. First member of each. */
enum stepaf_tcp_watched { STEPAF_TCP_LISTENER, STEPAF_TCP_STRANGER, STEPAF_TCP_CONNECTION };

enum stepaf_tcp_state {
    STEPAF_TCP_CLOSED,     /* not yet, or no more */
    STEPAF_TCP_CONNECTING, /* the kernel is at it */
    STEPAF_TCP_GREETING, /* hello is sent, challenge to come; or that is sent, and answer to come */
    STEPAF_TCP_ANSWERED, /* answer is sent, welcome to come */
    STEPAF_TCP_UP
};

/* What comes next on a connection. */
enum stepaf_tcp_phase {
    STEPAF_TCP_AT_HEAD,
    STEPAF_TCP_AT_DESCRIPTORS,
    STEPAF_TCP_AT_PAYLOAD,
    STEPAF_TCP_AT_TAIL,
    STEPAF_TCP_AT_WORDS,
    STEPAF_TCP_AT_PARTS /* all is here but PARTs on other connections */
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
        uint8_t at;      /* payload that is coming */
        bool spoiled;    /* one of its payloads had no place: its message is dropped */
        bool exact;      /* it has PARTs: nothing beyond it is read before they are here */
        uint8_t have;    /* bytes in held */
        bool spaced;     /* it has spaces */
        uint8_t at_byte; /* of it, since the last space; modulo STEPAF_TCP_ALIGN */
        uint8_t skip;    /* bytes of a space that come first */
        bool lent;       /* place is the caller's memory, and may be gone */
    } frame;             /* that is coming */
    struct stepaf_tcp_watch watch;
    int fd;                       /* -1: none */
    uint32_t left;                /* bytes of the payload to come */
    uint32_t parts_before, parts; /* on other connections up to the last frame, and this one */
    struct {
        bool any;
        uint32_t first, last;
    } bad; /* PARTs without a place here whose messages are to come, by number; of more than two,
            * those between are taken for such as well */
    uint8_t *place; /* where they go; NULL: nowhere */
    struct stepaf_tcp_link *link;
    uint64_t sent; /* bytes of the current post's share that are sent */
    /* Bytes of tensors in PARTs, of posts that are sent; the rest of the link's went by the first
     * connection. */
    uint64_t parts_sent;
    uint64_t came; /* ticks: its last PART, or message with some; only where held_up is asked for */
    struct {
        uint32_t sends; /* ever; the kernel counts along */
        uint32_t freed; /* of those, from the first on, the kernel is done with */
        uint64_t ahead; /* bit i: and with number freed + i */
    } zerocopy;
    struct stepaf_msg msg;
    union {
        struct stepaf_tcp_descriptor descriptors[STEPAF_MAX_TENSORS];
        struct { /* of the greeting, until it is up */
            uint64_t opener[STEPAF_CLAIM_NONCE_WORDS];
            uint64_t listener[STEPAF_CLAIM_NONCE_WORDS];
        };
    };
    uint8_t held[STEPAF_MAX_TENSORS * sizeof(struct stepaf_tcp_descriptor)]; /* of a cut-off head */
};

/* A post that is sent, whose tensors the kernel may still read. */
struct stepaf_tcp_held_post {
    struct stepaf_post *post;                  /* NULL: forgotten */
    uint32_t upto[STEPAF_TCP_CONNECTIONS_MAX]; /* sends of each connection */
};

/* A peer's addresses, and what came of the first. */
struct stepaf_tcp_tries {
    struct stepaf_net_addresses addresses;
    char trouble[STEPAF_TCP_ADDRESS_TEXT + 64];
};

struct stepaf_tcp_link {
    struct stepaf_link base;
    bool same_host;  /* the peer runs under the same kernel */
    bool up;         /* all connections are */
    bool opening;    /* counted in tcp->count.opening */
    bool broken;     /* a send has failed, one of several connections is at its end, or the link is
                      * unwritable; counted in tcp->count.broken, the reason is in trouble */
    bool unwritable; /* memory of this rank cannot be written: nothing is delivered any more */
    bool told;       /* and the peer has been told */
    uint8_t n_up;    /* connections */
    struct {
        uint8_t at; /* of these, sent */
        uint8_t bytes;
        uint8_t data[STEPAF_MSG_WORDS * 4 + sizeof(struct stepaf_tcp_tail) + STEPAF_TCP_ALIGN];
    } tail;            /* of a message that the socket has taken in part */
    bool zerocopy;     /* large tensors are sent without a copy */
    bool has_zerocopy; /* some of the current post's were */
    bool whole;        /* nothing is striped any more */
    uint8_t first_held;
    uint8_t n_held;
    struct stepaf_tcp_held_post held[STEPAF_TCP_HELD_POSTS]; /* a ring */
    const struct stepaf_post *current;                       /* the post that is sent in part */
    struct {
        void *base; /* instead of its tensors, which cannot be read; NULL: they can */
        size_t bytes;
    } zeros;
    uint32_t tx_parts; /* PARTs on every other connection, current included */
    uint32_t rx_parts[STEPAF_TCP_CONNECTIONS_MAX]; /* that have landed */
    uint64_t secret[STEPAF_CLAIM_SECRET_WORDS];    /* the peer's */
    uint32_t slot;                                 /* mine among the peer's peers */
    struct {
        struct stepaf_tcp_tries *theirs; /* NULL once up */
        unsigned trying;                 /* index in it */
        unsigned calls;                  /* of all connections, ever */
        uint16_t port;
        uint8_t shown_out;                      /* times, at this address */
        uint64_t redial_at;                     /* what is closed, ticks */
        uint64_t try_until;                     /* ticks */
    } dial;                                     /* where this side connects */
    char trouble[STEPAF_TCP_ADDRESS_TEXT + 64]; /* with the last one tried; or why it is broken */
    uint64_t heard; /* broken: when something last came; unwritable: since when; ticks */
    struct stepaf_tcp_connection connections[]; /* tcp->n_connections */
};

/* Accepted, but who is it? */
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
        unsigned opening; /* links that are not up, and not dead */
        unsigned held;    /* posts, of all links */
        unsigned tails;   /* links with the end of a message still to send */
        unsigned broken;  /* links that are lost once all that has come is taken in */
    } count;
    int refused_error; /* why no connection can be accepted */
    bool agreed;       /* no peer that has no link will get one */
    struct stepaf_tcp_connection *direct[STEPAF_TCP_DIRECT]; /* all that are up, where few */
    unsigned n_direct;                                       /* 0: ask epoll */
    unsigned at_stranger;
    struct stepaf_tcp_link **links; /* by peer; NULL: none */
    uint64_t secret[STEPAF_CLAIM_SECRET_WORDS];
    struct stepaf_net_addresses own;
    uint64_t kernel_id;  /* 0: not known */
    uint64_t network_id; /* likewise */
    struct {
        uint8_t watched;
        int fd; /* -1: none */
        uint16_t port;
        uint64_t refused_since; /* ticks; 0: the last one was accepted */
    } listener;
    uint64_t looked;   /* at deadlines of what opens, ticks */
    uint64_t listened; /* for signs of life, ticks */
    uint64_t ticks_per_us;
    struct stepaf_tcp_stranger *strangers; /* accepted, unproven; NULL: never listened */
    unsigned n_strangers;
    struct {
        unsigned wanted;               /* threads, before they are made */
        struct stepaf_tcp_copiers *it; /* NULL: there are none */
        unsigned n_large;              /* connections at large payloads, of this look */
        struct stepaf_tcp_connection *large[STEPAF_TCP_COPIES + 1];
    } copiers;
    uint8_t scratch[STEPAF_TCP_SCRATCH_BYTES];
};

extern const struct stepaf_transport_ops stepaf_tcp_ops;

/* link.c */
/* The connection is made and proven. */
void stepaf_tcp_connection_up(struct stepaf_tcp_connection *connection);
void stepaf_tcp_connection_close(struct stepaf_tcp_connection *connection);
/* Close all that a link has open. */
void stepaf_tcp_link_close(struct stepaf_tcp_link *link);
/* Tell the core, once, that the link is of no use any more. */
void stepaf_tcp_lost(struct stepaf_tcp_link *link, const char *reason);
/* Nothing is sent any more, but for the frame that is under way over an unwritable link. What the peer has said before it went may still lie in the sockets,
 * or be on its way: it is taken in before the link is lost. */
void stepaf_tcp_break(struct stepaf_tcp_link *link, const char *reason);

/* listen.c */
stepaf_status_t stepaf_tcp_listen(struct stepaf_tcp *tcp);
void stepaf_tcp_unlisten(struct stepaf_tcp *tcp);
/* Take in strangers; return how many. */
unsigned stepaf_tcp_accept(struct stepaf_tcp *tcp);
void stepaf_tcp_listen_to(struct stepaf_tcp *tcp, struct stepaf_tcp_stranger *stranger);
/* Let go of those that take too long. */
void stepaf_tcp_forget_strangers(struct stepaf_tcp *tcp, uint64_t now);

/* greet.c */
/* Begin a connection that the kernel has made. False, and errno. */
bool stepaf_tcp_greet(struct stepaf_tcp_connection *connection);
/* Go on with it; NULL, or why it is not the peer. */
const char *stepaf_tcp_take_challenge(struct stepaf_tcp_connection *connection);
const char *stepaf_tcp_take_welcome(struct stepaf_tcp_connection *connection);
/* The listener has closed, as where it is besieged and has no place: it may have one later. */
extern const char stepaf_tcp_shown_out[];
/* The listener's side: take @a fd for the connection that it says it is. False: it is none, and is
 * still the caller's. */
bool stepaf_tcp_admit(struct stepaf_tcp *tcp, const struct stepaf_tcp_hello *hello, int fd);
void stepaf_tcp_take_answer(struct stepaf_tcp_connection *connection);

/* connect.c */
void stepaf_tcp_pack_address(struct stepaf_transport *transport, struct stepaf_pack *pack);
stepaf_status_t stepaf_tcp_connect(struct stepaf_transport *transport,
                                   const struct stepaf_peer_facts *facts,
                                   struct stepaf_unpack *unpack, struct stepaf_link **link_p,
                                   char *reason);
void stepaf_tcp_disconnect(struct stepaf_link *link);
/* Go on with a connection that is being made: the kernel has news. */
void stepaf_tcp_connection_advance(struct stepaf_tcp_connection *connection);
/* Give up addresses that take too long. */
void stepaf_tcp_tries_check(struct stepaf_tcp *tcp, uint64_t now);
/* Nothing more will come over a connection. If its link is not up: that address is no good. */
void stepaf_tcp_connection_ended(struct stepaf_tcp_connection *connection, const char *reason);

/* finish.c */
stepaf_status_t stepaf_tcp_finish_connects(struct stepaf_transport *transport, int64_t deadline_ns,
                                           int wait_ms, uint32_t *peer_p, char *reason);
stepaf_status_t stepaf_tcp_reopen(struct stepaf_transport *transport);
void stepaf_tcp_shrink(struct stepaf_transport *transport);
/* No link opens any more. */
void stepaf_tcp_all_opened(struct stepaf_tcp *tcp);

/* socket.c */
/* Make a non-blocking socket, or accept one; -1 and errno. A child of fork() has neither: else the
 * peer would not see that this process has ended before its child ends as well. */
int stepaf_tcp_socket(int family);
int stepaf_tcp_socket_accept(int listener);
void stepaf_tcp_socket_close(int fd);
/* Close one that epoll watches, which has to be told: as long as a child that has just been forked has
 * a copy, epoll would go on to tell of it, for who may have been freed. */
void stepaf_tcp_socket_drop(struct stepaf_tcp *tcp, int fd);
/* The options of a socket that carries frames. */
void stepaf_tcp_socket_tune(const struct stepaf_env *env, int fd);
/* Where the other end is on this machine, by the loopback, and a round trip takes next to nothing:
 * nothing is to be shared with anybody on the way, so take the simplest congestion control. BBR,
 * which some systems have by default, spreads by timers what it sends, and lets megabytes gather;
 * then each byte comes from memory instead of from a cache. */
void stepaf_tcp_socket_near(int fd);
/* Say that nothing more will be sent, and forget what comes. Whether all that was sent is at the
 * peer's host, or the peer does not want it: to close before then could lose it. */
bool stepaf_tcp_socket_is_drained(int fd);
/* Whether all that was sent is at the peer's host: to close with something to read would lose the
 * rest. */
bool stepaf_tcp_socket_is_through(int fd);

/* send.c */
unsigned stepaf_tcp_post(struct stepaf_post *const *posts, unsigned n);
/* Send the ends of messages that sockets have taken in part. */
void stepaf_tcp_push_tails(struct stepaf_tcp *tcp);
/* Nothing more is sent instead of tensors that cannot be read. */
void stepaf_tcp_end_zeros(struct stepaf_tcp_link *link);
/* Tell the peer of an unwritable link, once. False: not yet, a frame is sent in part, or there is no
 * room. */
bool stepaf_tcp_tell_unwritable(struct stepaf_tcp_link *link);

/* zerocopy.c */
/* Prepare a socket; false if it is not to be, or cannot be. */
bool stepaf_tcp_zerocopy_enable(const struct stepaf_env *env, int fd);
/* A post has been sent in part without a copy: it is POSTED until the kernel is done with it. NULL:
 * one that nobody waits for. */
void stepaf_tcp_zerocopy_hold(struct stepaf_tcp_link *link, struct stepaf_post *post);
/* Ask the kernel what it is done with; return how many posts are SENT now. */
unsigned stepaf_tcp_zerocopy_reap(struct stepaf_tcp *tcp);
void stepaf_tcp_retire(struct stepaf_post *post);
/* The link closes: its posts are SENT. */
void stepaf_tcp_zerocopy_drop(struct stepaf_tcp_link *link);

/* receive.c */
/* Take in what is there; return whether there was something. Without @a large, large payloads are
 * left to the end of this look, when several are read at a time: see receive_large.c. */
unsigned stepaf_tcp_receive(struct stepaf_tcp_connection *connection, bool large);
/* Whether it is at such a payload. */
bool stepaf_tcp_is_at_large(const struct stepaf_tcp_connection *connection);
/* Ask for the place of the payload once more, since its memory may be gone since the last look.
 * NULL: there is none. */
uint8_t *stepaf_tcp_find_place(struct stepaf_tcp_connection *connection);
/* Take what a read of the payload to its place has brought; return whether that was something. */
unsigned stepaf_tcp_take_copy(struct stepaf_tcp_connection *connection,
                              const struct stepaf_tcp_copy *copy);

/* receive_large.c: read large payloads that a look has left; return how many had something. */
unsigned stepaf_tcp_receive_large(struct stepaf_tcp *tcp);

/* progress.c */
unsigned stepaf_tcp_progress(struct stepaf_transport *transport, unsigned polls);
/* While links open: go on with them, and take in what has come; wait @a wait_ms at most for
 * something. Returns whether there was something. */
unsigned stepaf_tcp_advance(struct stepaf_tcp *tcp, int wait_ms);
void stepaf_tcp_check_peers(struct stepaf_transport *transport);

static inline struct stepaf_tcp *stepaf_tcp_of(const struct stepaf_tcp_link *link)
{
    return (struct stepaf_tcp *)link->base.transport;
}

/* Bytes of connection @a index's piece of a tensor that goes over @a n connections; *at_p: where
 * it begins. */
static inline uint32_t stepaf_tcp_piece(uint32_t bytes, unsigned n, unsigned index, uint32_t *at_p)
{
    uint32_t each = bytes / n / 64 * 64, first = bytes - each * (n - 1);

    *at_p = index ? first + (index - 1) * each : 0;
    return index ? each : first;
}

#endif
