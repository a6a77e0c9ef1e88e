/* SPDX-License-Identifier: Apache-2.0 */
/* A rail that dies, while the two ranks have another one.
 *
 * Each end that finds a rail dead, or is told so, closes its queue pairs, so that nothing late can
 * come over it any more, and sends no posts. Then
 *
 *   CLOSED {rails, notifications sent on each path}   by every rail that is left
 *   TAKEN  {rails, messages taken}                    by the new lead
 *
 * go both ways. TAKEN is said once all that was notified has been looked at: what the dead rail had
 * brought until it was closed, and on the other paths as many notifications as the peer's CLOSED
 * says. What waits then for a PART that has not come is thrown away. Whoever is told TAKEN sends
 * the messages beyond that number again, each with its writes, over the paths that are left: the
 * peer has not read what they write. Each message is taken once, in order. Another rail that dies
 * meanwhile begins it all again, with one rail more in CLOSED and TAKEN.
 *
 * For this, every post with writes is held until they are acknowledged, however small, and messages
 * are kept until the peer is known to have taken them. A link with one rail has none of this. */
#ifndef STEPAF_TRANSPORT_VERBS_FAILOVER_H
#define STEPAF_TRANSPORT_VERBS_FAILOVER_H

#include "transport/verbs/verbs.h"

/* The transport's own messages. */
enum {
    STEPAF_VERBS_MSG_CLOSED = STEPAF_MSG_TRANSPORT, /* slot: rails; words: 16 bits for each path */
    STEPAF_VERBS_MSG_TAKEN,                         /* slot: rails; seq: messages */
    STEPAF_VERBS_MSG_NOTHING                        /* in the place of one that nobody waits for */
};

/* What stands for a notification that has been looked at before its turn. */
static const uint32_t stepaf_verbs_nothing =
    (uint32_t)STEPAF_IMM_OTHER << STEPAF_IMM_CODE_SHIFT | 1u;

/* A message that the peer may not have taken yet. */
struct stepaf_verbs_sent {
    struct stepaf_post *post; /* its writes, as long as it is held; NULL: it has none */
    struct stepaf_msg msg;
};

struct stepaf_verbs_failover {
    /* this end */
    uint8_t closed;     /* rails, a bit each */
    uint8_t told;       /* rails by which the peer has been told so */
    bool switched;      /* what has arrived is sorted out, and another path may lead */
    bool taken_told;    /* and the peer has been told how much that is */
    uint32_t rx_aside;  /* notifications on the lead that were no messages */
    uint64_t closed_at; /* ticks */
    /* the other one */
    uint8_t its_closed;
    uint8_t its_taken_of;                      /* the rails that its TAKEN named */
    uint32_t its_taken;                        /* and how many messages */
    uint16_t its_sent[STEPAF_VERBS_PATHS_MAX]; /* notifications, ever, when it closed */
    /* what is being sent again */
    uint32_t next; /* message */
    uint32_t at_offset;
    uint8_t at;
    uint32_t held_number[STEPAF_VERBS_HELD_POSTS]; /* the messages of posts that are held */
    struct stepaf_verbs_sent log[];                /* by number; receives */
};

/* failover.c */
/* Receives that posts leave for what is said when rails die. */
unsigned stepaf_verbs_failover_reserve(const struct stepaf_verbs *verbs);
/* Close a rail of a link: the others go on. False: there is no other, and nothing has changed. */
bool stepaf_verbs_failover_close(struct stepaf_verbs_link *link, unsigned rail, const char *reason);
/* The peer has said @a msg. */
void stepaf_verbs_failover_told(struct stepaf_verbs_link *link, const struct stepaf_msg *msg);
/* Look at notification @a number of a path, which says that a message is in the ring. */
void stepaf_verbs_failover_read(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                                uint32_t number);
/* The lead's next message waits: look for what the peer says of rails behind it. */
void stepaf_verbs_failover_seek(struct stepaf_verbs_link *link);
/* Go on as far as possible; return how many posts are over by that. */
unsigned stepaf_verbs_failover_step(struct stepaf_verbs_link *link);
/* The link is lost: what is held is so only by devices. */
void stepaf_verbs_failover_end(struct stepaf_verbs_link *link);

/* resend.c */
size_t stepaf_verbs_failover_bytes(const struct stepaf_verbs *verbs);
/* NULL: out of memory. */
struct stepaf_verbs_failover *stepaf_verbs_failover_make(const struct stepaf_verbs *verbs);
/* Keep the message that is being sent; then its post, which is held as @a at. */
void stepaf_verbs_log(struct stepaf_verbs_link *link, const struct stepaf_msg *msg);
void stepaf_verbs_log_post(struct stepaf_verbs_link *link, unsigned at, struct stepaf_post *post);
/* The post that is held as @a at is of no interest to anyone. */
void stepaf_verbs_log_forget(struct stepaf_verbs_link *link, unsigned at);
/* Whether a post has to wait since a rail is dead. If so, it is QUEUED. */
bool stepaf_verbs_holds_back(struct stepaf_verbs_link *link, struct stepaf_post *post);
/* The peer has taken so many messages: begin to send the rest again. Return how many posts are over
 * by that. */
unsigned stepaf_verbs_resend_begin(struct stepaf_verbs_link *link, uint32_t taken);
/* Go on with it, as far as there is room. */
void stepaf_verbs_resend(struct stepaf_verbs_link *link);

#endif
