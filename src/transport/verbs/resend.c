/* SPDX-License-Identifier: Apache-2.0 */
/* Keep messages that the peer may not have taken, and resend them. */
#include <stdlib.h>

#include "transport/verbs/failover.h"
#include "transport/verbs/send.h"

enum { NEVER = 1 << 30 /* work requests ahead of the posted ones */ };

/* Replaces posts that nobody waits for. */
static struct stepaf_post is_forgotten;

size_t stepaf_verbs_failover_bytes(const struct stepaf_verbs *verbs)
{
    return sizeof(struct stepaf_verbs_failover) +
           verbs->qp.receives * sizeof(struct stepaf_verbs_sent);
}

struct stepaf_verbs_failover *stepaf_verbs_failover_make(const struct stepaf_verbs *verbs)
{
    return calloc(1, stepaf_verbs_failover_bytes(verbs));
}

static struct stepaf_verbs_sent *sent_of(const struct stepaf_verbs_link *link, uint32_t number)
{
    return &link->failover->log[number & (stepaf_verbs_of(link)->qp.receives - 1)];
}

void stepaf_verbs_log(struct stepaf_verbs_link *link, const struct stepaf_msg *msg)
{
    *sent_of(link, (uint32_t)link->base.messages_sent - 1) =
        (struct stepaf_verbs_sent){.post = NULL, .msg = *msg};
}

void stepaf_verbs_log_post(struct stepaf_verbs_link *link, unsigned at, struct stepaf_post *post)
{
    uint32_t number = (uint32_t)link->base.messages_sent - 1;

    link->failover->held_number[at] = number;
    sent_of(link, number)->post = post;
}

/* Let the post held at index @a at complete when the requests signaled by now have completed, and
 * @a more. */
static void hold_until(struct stepaf_verbs_link *link, unsigned at, uint32_t more)
{
    for (unsigned i = 0; i < link->n_paths; i++)
        link->held_upto[at * link->n_paths + i] = link->paths[i].wr.asked + more;
}

void stepaf_verbs_log_forget(struct stepaf_verbs_link *link, unsigned at)
{
    struct stepaf_verbs_sent *sent = sent_of(link, link->failover->held_number[at]);

    /* The entry may belong to a later message by now, if the peer has reported sooner than the
     * device. */
    if (sent->post == link->held[at])
        sent->post = &is_forgotten;
    hold_until(link, at, 0);
}

/* Make a post that found no space halfway start again: bytes written of it so far are not
 * counted. */
static void begin_again(struct stepaf_verbs_link *link, struct stepaf_post *post)
{
    link->base.messages_again += post->at || post->at_offset;
    for (unsigned i = 0; i < post->at; i++)
        link->base.bytes_sent -= post->xfer[i].bytes;
    link->base.bytes_sent -= post->at_offset;
    post->at = 0;
    post->at_offset = 0;
}

bool stepaf_verbs_holds_back(struct stepaf_verbs_link *link, struct stepaf_post *post)
{
    if (link->halt != STEPAF_VERBS_REWINDS) {
        post->state = STEPAF_POST_QUEUED;
        return true;
    }
    begin_again(link, post);
    link->halt = STEPAF_VERBS_RUNS;
    return false;
}

/* Release posts whose messages have been taken. Return how many. */
static unsigned release_taken(struct stepaf_verbs_link *link, uint32_t taken)
{
    const struct stepaf_verbs_failover *failover = link->failover;
    unsigned n = 0;

    while (link->n_held && (int32_t)(failover->held_number[link->first_held] - taken) < 0)
        n += stepaf_verbs_release_first(link);
    return n;
}

/* Keep the other posts until they have been resent. Returns false if the sources of some are no
 * longer held, since a device has acknowledged them. */
static bool keep_rest(struct stepaf_verbs_link *link, uint32_t taken)
{
    unsigned n = 0;

    for (uint32_t i = taken; i != (uint32_t)link->base.messages_sent; i++) {
        const struct stepaf_post *post = sent_of(link, i)->post;
        n += post && post != &is_forgotten;
    }
    for (unsigned k = 0; k < link->n_held; k++) {
        unsigned at = (link->first_held + k) % STEPAF_VERBS_HELD_POSTS;
        if (!link->held[at])
            continue;
        hold_until(link, at, NEVER);
        n--;
    }
    return n == 0;
}

unsigned stepaf_verbs_resend_begin(struct stepaf_verbs_link *link, uint32_t taken)
{
    struct stepaf_verbs_failover *failover = link->failover;
    uint32_t missing = (uint32_t)link->base.messages_sent - taken;

    if (missing > stepaf_verbs_of(link)->qp.receives) {
        stepaf_verbs_lost(link, "it reports that it has received %u messages, of %u", taken,
                          (uint32_t)link->base.messages_sent);
        return 0;
    }
    unsigned n = release_taken(link, taken);
    if (!keep_rest(link, taken)) {
        stepaf_verbs_lost(link, "a dead rail has acknowledged data that the peer does not have");
        return n;
    }
    failover->next = taken;
    failover->at = 0;
    failover->at_offset = 0;
    link->tx_parts = link->tx_parts_told = 0;
    link->halt = STEPAF_VERBS_RESENDS;
    return n;
}

/* Resend one message. Returns false if part of it remains. */
static bool resend_one(struct stepaf_verbs_link *link)
{
    struct stepaf_verbs_failover *failover = link->failover;
    struct stepaf_verbs_sent *sent = sent_of(link, failover->next);
    uint64_t bytes = link->base.bytes_sent, messages = link->base.messages_sent;
    struct stepaf_post again = {.link = &link->base,
                                .at = failover->at,
                                .at_offset = failover->at_offset,
                                .msg = sent->msg};

    if (sent->post == &is_forgotten) {
        again.at = 0;
        again.at_offset = 0;
        again.msg = (struct stepaf_msg){.type = STEPAF_VERBS_MSG_NOTHING};
    } else if (sent->post) {
        again.xfer = sent->post->xfer;
        again.n_xfer = sent->post->n_xfer;
    }
    bool all = stepaf_verbs_send_again(link, &again);
    link->base.bytes_sent = bytes; /* was counted the first time */
    link->base.messages_sent = messages;
    failover->at = all ? 0 : again.at;
    failover->at_offset = all ? 0 : again.at_offset;
    link->base.messages_again += all && sent->post != &is_forgotten;
    if (all && again.xfer)
        hold_until(link, sent->post->at, 0);
    return all;
}

void stepaf_verbs_resend(struct stepaf_verbs_link *link)
{
    while (link->halt == STEPAF_VERBS_RESENDS && !link->base.dead) {
        if (link->failover->next == (uint32_t)link->base.messages_sent) {
            link->halt = STEPAF_VERBS_REWINDS;
            return;
        }
        if (!resend_one(link))
            return;
        link->failover->next++;
    }
}
