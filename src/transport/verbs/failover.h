/* SPDX-License-Identifier: Apache-2.0 */
/* Failover: a rail dies while the two ranks have another one.
 *
 * An end that finds a rail dead, or receives notice of it, closes the rail's queue pairs, so that
 * nothing late can arrive over the rail, and stops sending posts. Then both ends exchange
 *
 *   CLOSED {rails, notifications sent on each path}   over every rail that is left
 *   TAKEN  {rails, messages taken}                    over the new lead
 *
 * An end sends TAKEN once it has processed every notification: those that the dead rail had
 * delivered before it was closed, and on the other paths as many as the peer's CLOSED names. A
 * message that then still waits for a missing PART is discarded. The receiver of TAKEN resends the
 * messages beyond that number, each with its writes, over the remaining paths: the peer has not
 * read the memory that these writes target. Each message is taken once, in order. If another rail
 * dies meanwhile, the exchange starts again, with one more rail in CLOSED and TAKEN.
 *
 * For this purpose every post with writes, of any size, is held until the writes are acknowledged,
 * and messages are kept until the peer is known to have taken them. A link with one rail does none
 * of this. */
#ifndef STEPAF_TRANSPORT_VERBS_FAILOVER_H
#define STEPAF_TRANSPORT_VERBS_FAILOVER_H

#include "transport/verbs/verbs.h"

/* Messages of the transport itself. */
enum {
    STEPAF_VERBS_MSG_CLOSED = STEPAF_MSG_TRANSPORT, /* slot: rails; words: 16 bits for each path */
    STEPAF_VERBS_MSG_TAKEN,                         /* slot: rails; seq: messages */
    STEPAF_VERBS_MSG_NOTHING                        /* replaces a message that nobody waits for */
};

/* The imm that replaces a notification processed before its turn. */
static const uint32_t stepaf_verbs_nothing =
    (uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT | 1u;

/* A message that the peer may not have taken yet. */
struct stepaf_verbs_sent {
    struct stepaf_post *post; /* the post whose writes go with it, while held; NULL: no writes */
    struct stepaf_msg msg;
};

struct stepaf_verbs_failover {
    /* this end */
    uint8_t closed;     /* rails, a bit each */
    uint8_t told;       /* rails over which CLOSED has been sent */
    bool switched;      /* the arrived messages are sorted out, and another path may lead */
    bool taken_told;    /* TAKEN has been sent */
    uint32_t rx_aside;  /* notifications on the lead that were no messages */
    uint64_t closed_at; /* ticks */
    /* the other end */
    uint8_t its_closed;
    uint8_t its_taken_of;                      /* the rails that the peer's TAKEN named */
    uint32_t its_taken;                        /* and the number of messages */
    uint16_t its_sent[STEPAF_VERBS_PATHS_MAX]; /* notifications it had ever sent when it closed */
    /* what is being resent */
    uint32_t next; /* number of the message */
    uint32_t at_offset;
    uint8_t at;
    uint32_t held_number[STEPAF_VERBS_HELD_POSTS]; /* the messages of held posts */
    struct stepaf_verbs_sent log[];                /* by number; as many entries as receives */
};

/* failover.c */
/* Return the number of receives that posts leave free for failover messages. */
unsigned stepaf_verbs_failover_reserve(const struct stepaf_verbs *verbs);
/* Close a rail of a link; the others continue. Returns false if there is no other rail; then
 * nothing has changed. */
bool stepaf_verbs_failover_close(struct stepaf_verbs_link *link, unsigned rail, const char *reason);
/* Handle the failover message @a msg of the peer. */
void stepaf_verbs_failover_told(struct stepaf_verbs_link *link, const struct stepaf_msg *msg);
/* Process notification @a number of a path, which says that a message is in the ring. */
void stepaf_verbs_failover_read(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                                uint32_t number);
/* While the lead's next message waits, look behind it for failover messages of the peer. */
void stepaf_verbs_failover_seek(struct stepaf_verbs_link *link);
/* Continue as far as possible; return how many posts that completes. */
unsigned stepaf_verbs_failover_step(struct stepaf_verbs_link *link);
/* The link is lost: from now on held posts are held for the devices only. */
void stepaf_verbs_failover_end(struct stepaf_verbs_link *link);

/* resend.c */
size_t stepaf_verbs_failover_bytes(const struct stepaf_verbs *verbs);
/* Return NULL if out of memory. */
struct stepaf_verbs_failover *stepaf_verbs_failover_make(const struct stepaf_verbs *verbs);
/* Keep the message that is being sent; then its post, which is held at index @a at. */
void stepaf_verbs_log(struct stepaf_verbs_link *link, const struct stepaf_msg *msg);
void stepaf_verbs_log_post(struct stepaf_verbs_link *link, unsigned at, struct stepaf_post *post);
/* Forget the post that is held at index @a at: nobody needs it any more. */
void stepaf_verbs_log_forget(struct stepaf_verbs_link *link, unsigned at);
/* Return whether a post must wait because a rail is dead. If so, the post is QUEUED. */
bool stepaf_verbs_holds_back(struct stepaf_verbs_link *link, struct stepaf_post *post);
/* Begin to resend the messages after the first @a taken, which the peer has. Return how many posts
 * that completes. */
unsigned stepaf_verbs_resend_begin(struct stepaf_verbs_link *link, uint32_t taken);
/* Continue resending, as far as there is space. */
void stepaf_verbs_resend(struct stepaf_verbs_link *link);

#endif
