/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the consensus machine that every rank has; README.md has the rules. */
#include "boot/consensus/consensus.h"

#include <stdlib.h>
#include <string.h>

#include "boot/consensus/common.h"
#include "boot/consensus/lead.h"
#include "boot/consensus/rules.h"

bool stepaf_consensus_init(struct stepaf_consensus *consensus, int rank, int size,
                           stepaf_consensus_send_t send, void *arg)
{
    size_t n = (size_t)size;

    *consensus = (struct stepaf_consensus){.rank = rank, .size = size, .send = send, .arg = arg};
    consensus->is_member = malloc(n * sizeof *consensus->is_member);
    consensus->is_new = calloc(n, sizeof *consensus->is_new);
    consensus->lives = malloc(n * sizeof *consensus->lives);
    consensus->gone = calloc(n, sizeof *consensus->gone);
    consensus->lead.has_answered = calloc(n, sizeof *consensus->lead.has_answered);
    consensus->lead.blobs = calloc(n, sizeof *consensus->lead.blobs);
    if (!consensus->is_member || !consensus->is_new || !consensus->lives || !consensus->gone ||
        !consensus->lead.has_answered || !consensus->lead.blobs) {
        stepaf_consensus_free(consensus);
        return false;
    }
    for (size_t r = 0; r < n; r++) {
        consensus->is_member[r] = true;
        consensus->lives[r] = 1;
    }
    return true;
}

void stepaf_consensus_free(struct stepaf_consensus *consensus)
{
    stepaf_consensus_lead_drop(consensus);
    stepaf_consensus_drop(&consensus->own);
    stepaf_consensus_drop(&consensus->value);
    stepaf_consensus_drop(&consensus->before);
    free(consensus->is_member);
    free(consensus->is_new);
    free(consensus->lives);
    free(consensus->gone);
    free(consensus->lead.has_answered);
    free(consensus->lead.blobs);
    *consensus = (struct stepaf_consensus){0};
}

/* Check who is there, after a rank was lost or the decision was opened. */
static void look_around(struct stepaf_consensus *consensus)
{
    if (consensus->state != STEPAF_CONSENSUS_OPEN)
        return;
    if (consensus->is_out || !stepaf_consensus_is_majority(consensus)) {
        stepaf_consensus_resign(consensus);
        return;
    }
    int leader = stepaf_consensus_leader(consensus);
    if (leader != consensus->rank) {
        struct stepaf_consensus_message call =
            stepaf_consensus_begin(consensus, STEPAF_CONSENSUS_CALL, 0);
        consensus->send(consensus->arg, leader, &call);
    } else if (consensus->lead.leads) {
        stepaf_consensus_lead_on(consensus);
    } else {
        stepaf_consensus_lead_begin(consensus);
    }
}

/* ---- the sequence of a decision ---- */

void stepaf_consensus_next(struct stepaf_consensus *consensus)
{
    if (consensus->state == STEPAF_CONSENSUS_FAILED)
        return;
    stepaf_consensus_lead_drop(consensus);
    stepaf_consensus_drop(&consensus->own);
    stepaf_consensus_drop(&consensus->before);
    /* A value that was only accepted is no decision. */
    if (consensus->state != STEPAF_CONSENSUS_DONE)
        stepaf_consensus_drop(&consensus->value);
    consensus->before = consensus->value;
    consensus->value = (struct stepaf_consensus_blob){0};
    consensus->number++;
    consensus->state = STEPAF_CONSENSUS_ELSEWHERE;
    consensus->promised = consensus->accepted = 0;
    consensus->now = consensus->next;
    consensus->next = (struct stepaf_consensus_early){.is_called = false};
}

bool stepaf_consensus_is_called(const struct stepaf_consensus *consensus)
{
    for (int r = 0; r < consensus->size; r++)
        if (consensus->is_member[r] && stepaf_consensus_has_lost(consensus, r))
            return true;
    return consensus->now.is_called || consensus->stays || consensus->is_out;
}

/* Send the leader the promise that it has asked for. */
static void send_promise(struct stepaf_consensus *consensus, uint32_t ballot)
{
    struct stepaf_consensus_message promise =
        stepaf_consensus_begin(consensus, STEPAF_CONSENSUS_PROMISE, ballot);

    if (promise.ballot < consensus->promised)
        return;
    consensus->promised = promise.ballot;
    promise.own = consensus->own.data;
    promise.own_bytes = consensus->own.bytes;
    if (consensus->accepted) {
        promise.accepted = consensus->accepted;
        promise.value = consensus->value.data;
        promise.value_bytes = consensus->value.bytes;
    }
    consensus->send(consensus->arg, stepaf_consensus_ballot_rank(consensus, ballot), &promise);
}

void stepaf_consensus_open(struct stepaf_consensus *consensus, const void *own, size_t bytes)
{
    if (consensus->state != STEPAF_CONSENSUS_ELSEWHERE ||
        !stepaf_consensus_keep(consensus, &consensus->own, own, bytes))
        return;
    consensus->state = STEPAF_CONSENSUS_OPEN;
    consensus->stays = true;
    if (consensus->now.ballot &&
        stepaf_consensus_is_there(consensus,
                                  stepaf_consensus_ballot_rank(consensus, consensus->now.ballot)))
        send_promise(consensus, consensus->now.ballot);
    look_around(consensus);
}

void stepaf_consensus_learn(struct stepaf_consensus *consensus, const void *value, size_t bytes)
{
    if (consensus->state != STEPAF_CONSENSUS_ELSEWHERE)
        return;
    if (!value) { /* an invalid value must not be sent to ranks that ask for it */
        stepaf_consensus_starve(consensus);
        return;
    }
    if (!stepaf_consensus_keep(consensus, &consensus->value, value, bytes))
        return;
    stepaf_consensus_conclude(consensus);
    if (consensus->now.is_called) /* which ranks have asked meanwhile is not known */
        stepaf_consensus_tell(consensus, -1, consensus->number);
}

void stepaf_consensus_forget(struct stepaf_consensus *consensus)
{
    stepaf_consensus_drop(&consensus->before);
    if (consensus->state == STEPAF_CONSENSUS_DONE)
        stepaf_consensus_drop(&consensus->value);
}

void stepaf_consensus_lose(struct stepaf_consensus *consensus, int rank)
{
    if (rank == consensus->rank || stepaf_consensus_has_lost(consensus, rank))
        return;
    consensus->gone[rank] = consensus->lives[rank];
    consensus->n_lost++;
    look_around(consensus);
}

void stepaf_consensus_vacate(struct stepaf_consensus *consensus, int rank)
{
    consensus->is_member[rank] = false;
    consensus->gone[rank] = consensus->lives[rank];
}

void stepaf_consensus_set_members(struct stepaf_consensus *consensus, const uint8_t *is_member)
{
    for (int r = 0; r < consensus->size; r++) {
        consensus->is_member[r] = is_member[r];
        /* The bootstrap would wait for the rank. */
        consensus->stays = consensus->stays || !is_member[r];
    }
}

void stepaf_consensus_set_new(struct stepaf_consensus *consensus, const uint8_t *is_new)
{
    for (int r = 0; r < consensus->size; r++)
        consensus->is_new[r] = is_new && is_new[r];
}

void stepaf_consensus_admit(struct stepaf_consensus *consensus, int rank)
{
    consensus->is_member[rank] = true;
    consensus->lives[rank]++;
}

bool stepaf_consensus_return(struct stepaf_consensus *consensus, uint32_t number, const void *value,
                             size_t bytes)
{
    consensus->number = number;
    consensus->stays = true;
    if (!stepaf_consensus_keep(consensus, &consensus->value, value, bytes))
        return false;
    consensus->state = STEPAF_CONSENSUS_DONE;
    return true;
}

void stepaf_consensus_report(struct stepaf_consensus *consensus, int to)
{
    struct stepaf_consensus_message losses =
        stepaf_consensus_begin(consensus, STEPAF_CONSENSUS_LOSSES, 0);

    if (to != consensus->rank && !stepaf_consensus_has_lost(consensus, to))
        consensus->send(consensus->arg, to, &losses);
}

/* ---- messages of others ---- */

/* Return whether the sender knows that this rank is lost. */
static bool says_out(const struct stepaf_consensus *consensus,
                     const struct stepaf_consensus_message *message)
{
    return stepaf_consensus_gone_by(message, consensus->rank) >= consensus->lives[consensus->rank];
}

/* Put this rank out. A decision that has been made still holds. */
static void go_out(struct stepaf_consensus *consensus)
{
    consensus->is_out = true;
    look_around(consensus);
}

/* Adopt the losses that the sender knows. */
static void merge_lost(struct stepaf_consensus *consensus,
                       const struct stepaf_consensus_message *message)
{
    bool is_news = false;

    for (int r = 0; r < consensus->size; r++) {
        uint32_t gone = stepaf_consensus_gone_by(message, r);
        if (gone <= consensus->gone[r] || r == consensus->rank)
            continue;
        consensus->gone[r] = gone;
        is_news = is_news || stepaf_consensus_has_lost(consensus, r);
        consensus->n_lost++;
    }
    if (is_news)
        look_around(consensus);
}

/* Take a message about a decision that this rank makes elsewhere, or has not reached. */
static void hear_early(struct stepaf_consensus_early *early,
                       const struct stepaf_consensus_message *message)
{
    if (message->kind != STEPAF_CONSENSUS_CALL && message->kind != STEPAF_CONSENSUS_PREPARE)
        return;
    early->is_called = true;
    if (message->kind == STEPAF_CONSENSUS_PREPARE && message->ballot > early->ballot)
        early->ballot = message->ballot;
}

static void accept_value(struct stepaf_consensus *consensus, int from,
                         const struct stepaf_consensus_message *message)
{
    struct stepaf_consensus_message accepted =
        stepaf_consensus_begin(consensus, STEPAF_CONSENSUS_ACCEPTED, message->ballot);

    if (message->ballot < consensus->promised ||
        !stepaf_consensus_keep(consensus, &consensus->value, message->value, message->value_bytes))
        return;
    consensus->promised = consensus->accepted = message->ballot;
    consensus->send(consensus->arg, from, &accepted);
}

static void take_decision(struct stepaf_consensus *consensus,
                          const struct stepaf_consensus_message *message)
{
    bool leads = consensus->lead.leads;

    if (message->value) {
        if (!stepaf_consensus_keep(consensus, &consensus->value, message->value,
                                   message->value_bytes))
            return;
    } else if (!consensus->accepted || consensus->accepted < message->ballot) {
        return;
    }
    if (leads) /* others may wait for this rank */
        stepaf_consensus_tell(consensus, -1, consensus->number);
    stepaf_consensus_conclude(consensus);
}

static void take_open(struct stepaf_consensus *consensus, int from,
                      const struct stepaf_consensus_message *message)
{
    bool is_mine = message->ballot == stepaf_consensus_ballot(consensus, consensus->rank);

    switch (message->kind) {
    case STEPAF_CONSENSUS_CALL:
        stepaf_consensus_lead_again(consensus, from);
        break;
    case STEPAF_CONSENSUS_PREPARE:
        send_promise(consensus, message->ballot);
        break;
    case STEPAF_CONSENSUS_PROMISE:
        if (is_mine)
            stepaf_consensus_lead_promise(consensus, from, message);
        break;
    case STEPAF_CONSENSUS_ACCEPT:
        accept_value(consensus, from, message);
        break;
    case STEPAF_CONSENSUS_ACCEPTED:
        if (is_mine && consensus->lead.leads && consensus->lead.proposes) {
            consensus->lead.has_answered[from] = true;
            stepaf_consensus_lead_on(consensus);
        }
        break;
    case STEPAF_CONSENSUS_DECIDED:
        take_decision(consensus, message);
        break;
    default:
        break;
    }
}

/* Take a message of a rank that is alive, as far as this rank knows. */
static void take_alive(struct stepaf_consensus *consensus, int from,
                       const struct stepaf_consensus_message *message)
{
    bool asks = message->kind == STEPAF_CONSENSUS_CALL ||
                message->kind == STEPAF_CONSENSUS_PREPARE ||
                message->kind == STEPAF_CONSENSUS_ACCEPT;
    struct stepaf_consensus_message resign =
        stepaf_consensus_begin(consensus, STEPAF_CONSENSUS_RESIGN, 0);

    merge_lost(consensus, message);
    if (message->number == consensus->number + 1)
        hear_early(&consensus->next, message);
    else if (asks && message->number + 1 == consensus->number)
        stepaf_consensus_tell(consensus, from, message->number);
    if (message->number != consensus->number)
        return;
    if (consensus->state == STEPAF_CONSENSUS_ELSEWHERE)
        hear_early(&consensus->now, message);
    else if (consensus->state == STEPAF_CONSENSUS_OPEN)
        take_open(consensus, from, message);
    else if (consensus->state == STEPAF_CONSENSUS_DONE && asks)
        stepaf_consensus_tell(consensus, from, consensus->number);
    else if (asks && !consensus->is_starved)
        consensus->send(consensus->arg, from, &resign);
}

/* Take a message of a process that has an earlier one's place, by a decision that this rank has not
 * reached. What the process knows of others may be about lives that this rank does not know, and
 * the process may not be who it claims to be. */
static void hear_ahead(struct stepaf_consensus *consensus,
                       const struct stepaf_consensus_message *message)
{
    if (message->number == consensus->number + 1 &&
        (message->kind == STEPAF_CONSENSUS_CALL || message->kind == STEPAF_CONSENSUS_PREPARE))
        consensus->next.is_called = true;
}

/* Tell a rank that this rank has lost it. A rank that is out itself, or has failed, sends RESIGN
 * instead: it must not declare others lost. */
static void answer_lost(struct stepaf_consensus *consensus, int from,
                        const struct stepaf_consensus_message *message)
{
    bool goes = consensus->is_out ||
                (consensus->state == STEPAF_CONSENSUS_FAILED && !consensus->is_starved);
    struct stepaf_consensus_message answer =
        stepaf_consensus_begin(consensus, goes ? STEPAF_CONSENSUS_RESIGN : STEPAF_CONSENSUS_OUT, 0);

    if (message->kind != STEPAF_CONSENSUS_OUT && message->kind != STEPAF_CONSENSUS_RESIGN)
        consensus->send(consensus->arg, from, &answer);
}

bool stepaf_consensus_take(struct stepaf_consensus *consensus, int from,
                           const struct stepaf_consensus_message *message)
{
    bool is_ahead = message->life > consensus->lives[from];

    if (!stepaf_consensus_is_by_the_rules(consensus, from, message))
        return false;
    if (is_ahead)
        hear_ahead(consensus, message);
    else if (stepaf_consensus_has_lost(consensus, from) || message->life < consensus->lives[from])
        answer_lost(consensus, from, message);
    else if (message->kind == STEPAF_CONSENSUS_RESIGN)
        stepaf_consensus_lose(consensus, from);
    else if (says_out(consensus, message))
        go_out(consensus);
    else if (!stepaf_consensus_can_be_lost(consensus, message))
        return false;
    else
        take_alive(consensus, from, message);
    return true;
}
