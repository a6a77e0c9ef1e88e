/* SPDX-License-Identifier: Apache-2.0 */
/* What transports over a fabric of others (libfabric, UCX) share: numbered messages, pieces that
 * are counted, credits, a proof that a link works, and watching peers. README.md says how. */
#ifndef STEPAF_TRANSPORT_FABRIC_LINK_H
#define STEPAF_TRANSPORT_FABRIC_LINK_H

#include "transport/transport.h"

enum {
    STEPAF_FABRIC_RING = 16,  /* messages that a peer may be behind */
    STEPAF_FABRIC_SLOT = 128, /* bytes of one */
    STEPAF_FABRIC_LINE = 64,  /* alignment of the first link */
    STEPAF_FABRIC_PEERS = 1 << 14,
    STEPAF_FABRIC_NUMBER = 0xffff /* of the number of a message: as much as is told */
};

/* What comes from a peer. */
enum stepaf_fabric_kind {
    STEPAF_FABRIC_PIECE = 0,   /* with the number of the message that it belongs to */
    STEPAF_FABRIC_MESSAGE = 1, /* with its own number */
    STEPAF_FABRIC_CREDIT = 2,  /* how many messages have been taken */
    STEPAF_FABRIC_HELLO = 3    /* the link carries something */
};

/* A message that has come. */
struct stepaf_fabric_slot {
    uint64_t token; /* the receiver's, which it has told its peers only */
    uint32_t seq;
    uint32_t taken;  /* credit for the receiver of this */
    uint32_t pieces; /* that belong to it */
    uint32_t zero;
    struct stepaf_msg msg;
};

_Static_assert(sizeof(struct stepaf_fabric_slot) <= STEPAF_FABRIC_SLOT, "a message fits its slot");

/* What has come of the message of a number, and its pieces. */
enum stepaf_fabric_here {
    STEPAF_FABRIC_NOT_HERE,
    STEPAF_FABRIC_IN_SLOT, /* all of it is in its slot */
    STEPAF_FABRIC_AS_IMM   /* it is what 32 bits say: stepaf_msg_to_imm */
};

struct stepaf_fabric_due {
    uint32_t landed; /* pieces */
    uint32_t imm, pieces;
    enum stepaf_fabric_here here;
};

struct stepaf_fabric;
struct stepaf_fabric_link;

/* A message under way with its pieces, until this side has heard of the end of each. */
struct stepaf_fabric_flight {
    struct stepaf_fabric_link *link;
    struct stepaf_post *post; /* POSTED and not retired */
    uint32_t pending;
    uint32_t pieces;
};

/* Whether anything gets through: see prove.c. */
enum stepaf_fabric_proof_state {
    STEPAF_FABRIC_UNPROVEN,
    STEPAF_FABRIC_PROVEN,
    STEPAF_FABRIC_REFUTED
};

struct stepaf_fabric_proof {
    enum stepaf_fabric_proof_state state;
    bool sent, here;  /* the own hello; the peer's */
    int error;        /* the library's, if it is refuted */
    int64_t since_ns; /* when it was begun; 0: not yet */
};

/* Begins the link of such a transport. */
struct stepaf_fabric_link {
    struct stepaf_link base;
    uint64_t token; /* the peer's */
    uint32_t index_at_peer;
    uint32_t sent, credit; /* messages; how many of them the peer has taken */
    uint32_t taken, told;  /* the peer's messages; how many of them it knows to be taken */
    struct stepaf_fabric_due due[STEPAF_FABRIC_RING];
    bool used, is_local;
    struct stepaf_fabric_proof proof;
    struct stepaf_fabric_flight flight[STEPAF_FABRIC_RING];
    struct stepaf_fabric_flight *open;   /* its post is QUEUED, and begun */
    struct stepaf_fabric_flight control; /* credits */
    int pidfd;                           /* of a peer of the same node; or -1 */
    int64_t heard_ns;                    /* when something of it was last noticed */
    uint32_t heard, noticed;             /* signs of life; as many at the last look */
};

/* What differs. */
struct stepaf_fabric_calls {
    /* Send a CREDIT or HELLO, by flight control. False: no room. */
    bool (*control)(struct stepaf_fabric_link *link, enum stepaf_fabric_kind kind);
    /* Where the messages of a peer are, STEPAF_FABRIC_SLOT apart. */
    const uint8_t *(*slots)(const struct stepaf_fabric_link *link);
    /* Take in what has come, but deliver none of it: the next progress does. Where links are not
     * read, as while a commit waits for other ranks, this shows who lives. */
    void (*set_aside)(struct stepaf_fabric *fabric);
    /* It is proven now; or NULL. */
    void (*proven)(struct stepaf_fabric_link *link);
    /* Find out which rail was last with the message of @a number, which is about to be delivered,
     * and tell it: stepaf_tell_last_rail. NULL: there is one rail only. */
    void (*tell_last_rail)(struct stepaf_fabric_link *link, uint32_t number,
                           const struct stepaf_msg *msg, uint32_t imm);
};

/* Begins such a transport. */
struct stepaf_fabric {
    struct stepaf_transport base;
    const struct stepaf_fabric_calls *calls;
    const char *name; /* of what carries it, such as "efa" */
    const char *(*strerror)(int error);
    const int64_t *timeout_us;
    void *links; /* n_peers times link_bytes */
    size_t link_bytes;
    uint32_t n_peers;
    uint64_t token;
    uint64_t pids; /* the namespace of process numbers */
    int64_t looked_ns;
    struct stepaf_fabric_link *asked; /* a look writes a credit to it; else NULL */
    int asked_error;                  /* of that credit; 0: none */
};

static inline struct stepaf_fabric_link *stepaf_fabric_link(const struct stepaf_fabric *fabric,
                                                            uint32_t peer)
{
    return (struct stepaf_fabric_link *)(void *)((char *)fabric->links + peer * fabric->link_bytes);
}

static inline struct stepaf_fabric *stepaf_fabric_of(const struct stepaf_fabric_link *link)
{
    return (struct stepaf_fabric *)link->base.transport;
}

/* Make links and a token. 0, or an errno. */
int stepaf_fabric_open(struct stepaf_fabric *fabric, uint32_t n_peers, size_t link_bytes);
/* Begin a link to a peer on the same node or another; its name and address are to be set. */
void stepaf_fabric_connect(struct stepaf_fabric_link *link, const struct stepaf_peer_facts *facts,
                           uint64_t token, uint64_t pids);
void stepaf_fabric_disconnect(struct stepaf_fabric_link *link);

/* count.c. A piece or a message, by what it says of itself. False: it makes no sense now, and
 * changes nothing. */
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
/* A MESSAGE is not due. Where another one stands in its place that no slot can disprove, one of
 * both is not the peer's, which nobody can tell: the link is lost, rather than that it waits for
 * pieces that may never come. */
void stepaf_fabric_refuse_message(struct stepaf_fabric_link *link, uint32_t number);
void stepaf_fabric_count(struct stepaf_fabric_link *link, enum stepaf_fabric_kind kind,
                         uint32_t number);
/* A message that is due, of as many pieces, in 32 bits. It tells no credit. */
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
/* Whether the next message may go without a credit: the peer has been told of enough. */
static inline bool stepaf_fabric_can_omit_credit(const struct stepaf_fabric_link *link)
{
    return link->taken - link->told < STEPAF_FABRIC_RING / 2 - 1;
}
/* Deliver what is complete. */
void stepaf_fabric_deliver(struct stepaf_fabric_link *link);
/* Deliver what is complete on all links; how many messages that were. */
unsigned stepaf_fabric_deliver_all(struct stepaf_fabric *fabric);

/* flight.c. The flight of the next message; NULL: there is no room now. */
struct stepaf_fabric_flight *stepaf_fabric_begin(struct stepaf_fabric_link *link,
                                                 struct stepaf_post *post);
/* All of it is handed over. @a post: it is POSTED; NULL: its sources are free already. */
void stepaf_fabric_end_post(struct stepaf_fabric_flight *flight, struct stepaf_post *post);
/* One of the sends of a flight has ended. */
void stepaf_fabric_end_send(struct stepaf_fabric_flight *flight);
/* Whether a post's sends are under way: over the link; or anything, to any live peer. */
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
/* It is lost; or refuted, if it is not proven yet. A library's error is not 0. */
void stepaf_fabric_lose(struct stepaf_fabric_link *link, int error);

#endif
