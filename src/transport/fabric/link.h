/* SPDX-License-Identifier: Apache-2.0 */
/* What transports over another library's fabric (libfabric, UCX) share: numbered messages, pieces
 * that are counted, credits, a proof that a link works, and watching peers. See README.md. */
#ifndef STEPAF_TRANSPORT_FABRIC_LINK_H
#define STEPAF_TRANSPORT_FABRIC_LINK_H

#include "transport/transport.h"

enum {
    STEPAF_FABRIC_RING = 16,  /* messages that a peer may be behind */
    STEPAF_FABRIC_SLOT = 128, /* bytes of one */
    STEPAF_FABRIC_LINE = 64,  /* alignment of the first link */
    STEPAF_FABRIC_PEERS = 1 << 14,
    STEPAF_FABRIC_NUMBER = 0xffff /* the part of a message's number that is sent */
};

/* What a peer sends. */
enum stepaf_fabric_kind {
    STEPAF_FABRIC_PIECE = 0,   /* with the number of the message that it belongs to */
    STEPAF_FABRIC_MESSAGE = 1, /* with its own number */
    STEPAF_FABRIC_CREDIT = 2,  /* how many messages have been taken */
    STEPAF_FABRIC_HELLO = 3    /* shows that the link works */
};

/* A message in its slot. */
struct stepaf_fabric_slot {
    uint64_t token; /* the receiver's, which only its peers know */
    uint32_t seq;
    uint32_t taken;  /* credit for the receiver of this message */
    uint32_t pieces; /* that belong to it */
    uint32_t zero;
    struct stepaf_msg msg;
};

_Static_assert(sizeof(struct stepaf_fabric_slot) <= STEPAF_FABRIC_SLOT, "a message fits its slot");

/* What has arrived of the message with one number, and of its pieces. */
enum stepaf_fabric_here {
    STEPAF_FABRIC_NOT_HERE,
    STEPAF_FABRIC_IN_SLOT, /* the whole message is in its slot */
    STEPAF_FABRIC_AS_IMM   /* the message is 32 bits: stepaf_msg_to_imm */
};

struct stepaf_fabric_due {
    uint32_t landed; /* pieces */
    uint32_t imm, pieces;
    enum stepaf_fabric_here here;
};

struct stepaf_fabric;
struct stepaf_fabric_link;

/* A message in flight with its pieces, until this side knows that each send has completed. */
struct stepaf_fabric_flight {
    struct stepaf_fabric_link *link;
    struct stepaf_post *post; /* POSTED and not retired */
    uint32_t pending;
    uint32_t pieces;
};

/* Whether data gets through: see prove.c. */
enum stepaf_fabric_proof_state {
    STEPAF_FABRIC_UNPROVEN,
    STEPAF_FABRIC_PROVEN,
    STEPAF_FABRIC_REFUTED
};

struct stepaf_fabric_proof {
    enum stepaf_fabric_proof_state state;
    bool sent, here;  /* this side's hello; the peer's */
    bool answers;     /* this side's hello follows the peer's */
    int error;        /* the library's, if it is refuted */
    int64_t since_ns; /* when the proof was begun; 0: not yet */
};

/* The beginning of the link of such a transport. */
struct stepaf_fabric_link {
    struct stepaf_link base;
    uint64_t token;          /* the peer's */
    uint32_t sender;         /* the peer's sender number here: see stepaf_fabric */
    uint32_t sender_at_peer; /* this rank's at the peer */
    uint32_t sent, credit;   /* messages sent; how many of them the peer has taken */
    uint32_t taken, told;    /* the peer's messages taken; how many of them it knows of */
    struct stepaf_fabric_due due[STEPAF_FABRIC_RING];
    bool used, is_local;
    bool has_ended; /* the peer's process, which was seen when the link was disconnected */
    struct stepaf_fabric_proof proof;
    struct stepaf_fabric_flight flight[STEPAF_FABRIC_RING];
    struct stepaf_fabric_flight *open;   /* its post has been begun, and is QUEUED */
    struct stepaf_fabric_flight control; /* credits */
    int pidfd;                           /* of a peer of the same node; or -1 */
    int64_t heard_ns;                    /* when activity of the peer was last noticed */
    uint32_t heard, noticed;             /* activity, counted; the count at the last check */
};

/* What differs between the transports. */
struct stepaf_fabric_calls {
    /* Send a CREDIT or HELLO, with flight control. False: no space. */
    bool (*control)(struct stepaf_fabric_link *link, enum stepaf_fabric_kind kind);
    /* Where the messages of a peer are, STEPAF_FABRIC_SLOT apart. */
    const uint8_t *(*slots)(const struct stepaf_fabric_link *link);
    /* Take in what has arrived, but leave its delivery to the next progress. Where links are not
     * read, as while a commit waits for other ranks, this shows which peers live. */
    void (*set_aside)(struct stepaf_fabric *fabric);
    /* The link is proven now. May be NULL. */
    void (*proven)(struct stepaf_fabric_link *link);
    /* Find out which rail was last with the message of @a number, which is about to be delivered,
     * and report it: stepaf_tell_last_rail. NULL: there is only one rail. */
    void (*tell_last_rail)(struct stepaf_fabric_link *link, uint32_t number,
                           const struct stepaf_msg *msg, uint32_t imm);
};

/* The beginning of such a transport. */
struct stepaf_fabric {
    struct stepaf_transport base;
    const struct stepaf_fabric_calls *calls;
    const char *name; /* of the provider or library, such as "efa" */
    const char *(*strerror)(int error);
    bool (*is_refusal)(int error); /* the library rejects the call, whatever the network permits */
    const int64_t *timeout_us;
    /* Links by sender number, with which all that a peer writes begins. At first that is the index
     * of the peer. The process that takes a lost peer's place gets a new number and a new link, so
     * that what its predecessor has written, or still writes, is told apart. */
    struct stepaf_fabric_link **senders;
    struct stepaf_fabric_link **links; /* by peer: those in use */
    void *first;                       /* the first n_peers links: n_peers times link_bytes */
    size_t link_bytes;
    uint32_t n_peers, n_senders;
    uint64_t token;
    uint64_t pids; /* the PID namespace */
    int64_t looked_ns;
    struct stepaf_fabric_link *asked; /* check_peers writes a credit to it; else NULL */
    int asked_error;                  /* of that credit; 0: none */
};

static inline struct stepaf_fabric_link *stepaf_fabric_link(const struct stepaf_fabric *fabric,
                                                            uint32_t peer)
{
    return fabric->links[peer];
}

static inline struct stepaf_fabric *stepaf_fabric_of(const struct stepaf_fabric_link *link)
{
    return (struct stepaf_fabric *)link->base.transport;
}

/* sender.c. Make links and a token. Returns 0 or an errno; stepaf_fabric_close frees what there
 * is. */
int stepaf_fabric_open(struct stepaf_fabric *fabric, uint32_t n_peers, size_t link_bytes);
void stepaf_fabric_close(struct stepaf_fabric *fabric);
/* Return whether a link has been connected and has ended: its peer's next process needs another. */
bool stepaf_fabric_is_spent(const struct stepaf_fabric_link *link);
/* Put a new link, with a new sender number, in place of a peer's spent one. The spent link stays
 * until the end: posts and writes in flight name it. Returns NULL if there is no memory, or no
 * number. */
struct stepaf_fabric_link *stepaf_fabric_replace(struct stepaf_fabric *fabric, uint32_t peer);
/* Return whether this host has seen the process at the other end of a link end. */
bool stepaf_fabric_has_ended(const struct stepaf_fabric_link *link);
/* Return whether the process at the other end of a dead link has ended, as far as this host can
 * see; true for a process of another host. */
bool stepaf_fabric_is_over(struct stepaf_link *link);

/* flight.c */
/* Begin a link to a peer on the same node or another; the caller sets its name, address, and
 * sender_at_peer. */
void stepaf_fabric_connect(struct stepaf_fabric_link *link, const struct stepaf_peer_facts *facts,
                           uint64_t token, uint64_t pids);
void stepaf_fabric_disconnect(struct stepaf_fabric_link *link);

/* count.c. A piece or a message, as it describes itself. False: it makes no sense now, and changes
 * nothing. */
static inline bool stepaf_fabric_is_next(const struct stepaf_fabric_link *link, uint32_t number)
{
    return link->used && ((number - link->taken) & STEPAF_FABRIC_NUMBER) < STEPAF_FABRIC_RING;
}
static inline bool stepaf_fabric_is_due(const struct stepaf_fabric_link *link,
                                        enum stepaf_fabric_kind kind, uint32_t number)
{
    return stepaf_fabric_is_next(link, number) &&
           !(kind == STEPAF_FABRIC_MESSAGE && link->due[number % STEPAF_FABRIC_RING].here);
}
/* A MESSAGE is not due. If another message that no slot can disprove is in its place, one of both
 * is not the peer's, and nobody can tell which. Then the link is lost: otherwise it could wait for
 * pieces that never arrive. */
void stepaf_fabric_refuse_message(struct stepaf_fabric_link *link, uint32_t number);
void stepaf_fabric_count(struct stepaf_fabric_link *link, enum stepaf_fabric_kind kind,
                         uint32_t number);
/* A message that is due, with this many pieces, in 32 bits. It carries no credit. */
static inline void stepaf_fabric_count_imm(struct stepaf_fabric_link *link, uint32_t number,
                                           uint32_t pieces, uint32_t imm)
{
    struct stepaf_fabric_due *due = &link->due[number % STEPAF_FABRIC_RING];

    due->here = STEPAF_FABRIC_AS_IMM;
    due->pieces = pieces;
    due->imm = imm;
}
static inline void stepaf_fabric_take_credit(struct stepaf_fabric_link *link, uint32_t taken)
{
    uint32_t more = (taken - link->credit) & STEPAF_FABRIC_NUMBER;

    if (more <= link->sent - link->credit) /* else it is older than what is known */
        link->credit += more;
}
/* Whether the next message may omit the credit: the peer knows of enough. */
static inline bool stepaf_fabric_can_omit_credit(const struct stepaf_fabric_link *link)
{
    return link->taken - link->told < STEPAF_FABRIC_RING / 2 - 1;
}
/* Deliver what is complete. */
void stepaf_fabric_deliver(struct stepaf_fabric_link *link);
/* Deliver what is complete on all links; return how many messages that were. */
unsigned stepaf_fabric_deliver_all(struct stepaf_fabric *fabric);

/* The flight of the next message; NULL: there is no space now. */
struct stepaf_fabric_flight *stepaf_fabric_begin(struct stepaf_fabric_link *link,
                                                 struct stepaf_post *post);
/* All of the post is handed over. @a post: it is POSTED; NULL: its sources are already free. */
void stepaf_fabric_end_post(struct stepaf_fabric_flight *flight, struct stepaf_post *post);
/* One of the sends of a flight has completed. */
void stepaf_fabric_end_send(struct stepaf_fabric_flight *flight);
/* Whether a post's sends are in flight over the link; whether anything is, to any live peer. */
bool stepaf_fabric_link_has_pending(const struct stepaf_fabric_link *link);
bool stepaf_fabric_has_pending(const struct stepaf_fabric *fabric);
bool stepaf_fabric_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p);
void stepaf_fabric_retire(struct stepaf_post *post);

/* prove.c */
stepaf_status_t stepaf_fabric_finish_connects(struct stepaf_transport *transport,
                                              int64_t deadline_ns, int wait_ms, uint32_t *peer_p,
                                              char *reason);
stepaf_status_t stepaf_fabric_prove_links(struct stepaf_transport *transport, bool begin,
                                          uint32_t *peer_p, char *reason);

/* watch.c */
void stepaf_fabric_watch(struct stepaf_fabric_link *link, uint32_t pid);
void stepaf_fabric_check_peers(struct stepaf_transport *transport);
/* The link is lost; or refuted, if it is not proven yet. The library's error is never 0. */
void stepaf_fabric_lose(struct stepaf_fabric_link *link, int error);

#endif
