/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that all have a part in; README.md has the rules. */
#include "boot/accord/accord.h"

#include <stdlib.h>
#include <string.h>

#include "boot/accord/common.h"
#include "boot/accord/lead.h"

bool stepaf_accord_init(struct stepaf_accord *accord, int rank, int size, stepaf_accord_send_t send,
                        void *arg)
{
    size_t n = (size_t)size;

    *accord = (struct stepaf_accord){
        .rank = rank, .size = size, .send = send, .arg = arg, .now.leader = -1, .next.leader = -1};
    accord->is_member = malloc(n * sizeof *accord->is_member);
    accord->lost = calloc(n, 1);
    accord->lead.has_answered = calloc(n, sizeof *accord->lead.has_answered);
    accord->lead.blobs = calloc(n, sizeof *accord->lead.blobs);
    if (!accord->is_member || !accord->lost || !accord->lead.has_answered || !accord->lead.blobs) {
        stepaf_accord_free(accord);
        return false;
    }
    for (size_t r = 0; r < n; r++)
        accord->is_member[r] = true;
    return true;
}

void stepaf_accord_free(struct stepaf_accord *accord)
{
    stepaf_accord_lead_drop(accord);
    stepaf_accord_drop(&accord->own);
    stepaf_accord_drop(&accord->value);
    stepaf_accord_drop(&accord->before);
    free(accord->is_member);
    free(accord->lost);
    free(accord->lead.has_answered);
    free(accord->lead.blobs);
    *accord = (struct stepaf_accord){0};
}

/* Somebody is there no more, or the decision has been begun. */
static void look_around(struct stepaf_accord *accord)
{
    if (accord->state != STEPAF_ACCORD_OPEN)
        return;
    if (accord->is_out || !stepaf_accord_is_majority(accord)) {
        accord->state = STEPAF_ACCORD_FAILED;
        return;
    }
    int leader = stepaf_accord_leader(accord);
    if (leader != accord->rank) {
        struct stepaf_accord_message call = stepaf_accord_begin(accord, STEPAF_ACCORD_CALL, 0);
        accord->send(accord->arg, leader, &call);
    } else if (accord->lead.leads) {
        stepaf_accord_lead_on(accord);
    } else {
        stepaf_accord_lead_begin(accord);
    }
}

/* ---- the course of a decision ---- */

void stepaf_accord_next(struct stepaf_accord *accord)
{
    if (accord->state == STEPAF_ACCORD_FAILED)
        return;
    stepaf_accord_lead_drop(accord);
    stepaf_accord_drop(&accord->own);
    stepaf_accord_drop(&accord->before);
    accord->before = accord->value;
    accord->value = (struct stepaf_accord_blob){0};
    accord->number++;
    accord->state = STEPAF_ACCORD_ELSEWHERE;
    accord->promised = accord->accepted = 0;
    accord->now = accord->next;
    accord->next = (struct stepaf_accord_early){.leader = -1};
}

bool stepaf_accord_is_called(const struct stepaf_accord *accord)
{
    for (int r = 0; r < accord->size; r++)
        if (accord->is_member[r] && accord->lost[r])
            return true;
    return accord->now.is_called || accord->stays || accord->is_out;
}

/* Let the leader have what it has asked for. */
static void promise_to(struct stepaf_accord *accord, int leader)
{
    struct stepaf_accord_message promise =
        stepaf_accord_begin(accord, STEPAF_ACCORD_PROMISE, (uint32_t)leader + 1);

    if (promise.ballot < accord->promised)
        return;
    accord->promised = promise.ballot;
    promise.own = accord->own.data;
    promise.own_bytes = accord->own.bytes;
    if (accord->accepted) {
        promise.accepted = accord->accepted;
        promise.value = accord->value.data;
        promise.value_bytes = accord->value.bytes;
    }
    accord->send(accord->arg, leader, &promise);
}

void stepaf_accord_open(struct stepaf_accord *accord, const void *own, size_t bytes)
{
    if (accord->state != STEPAF_ACCORD_ELSEWHERE ||
        !stepaf_accord_keep(accord, &accord->own, own, bytes))
        return;
    accord->state = STEPAF_ACCORD_OPEN;
    accord->stays = true;
    if (accord->now.leader >= 0 && stepaf_accord_is_there(accord, accord->now.leader))
        promise_to(accord, accord->now.leader);
    look_around(accord);
}

void stepaf_accord_settle(struct stepaf_accord *accord, const void *value, size_t bytes)
{
    if (accord->state != STEPAF_ACCORD_ELSEWHERE)
        return;
    if (!stepaf_accord_keep(accord, &accord->value, value, bytes))
        return;
    stepaf_accord_conclude(accord);
    if (accord->now.is_called) /* who has asked meanwhile is not known */
        stepaf_accord_tell(accord, -1, accord->number);
}

void stepaf_accord_forget(struct stepaf_accord *accord)
{
    stepaf_accord_drop(&accord->before);
    if (accord->state == STEPAF_ACCORD_DONE)
        stepaf_accord_drop(&accord->value);
}

void stepaf_accord_lose(struct stepaf_accord *accord, int rank)
{
    if (rank == accord->rank || accord->lost[rank])
        return;
    accord->lost[rank] = 1;
    accord->n_lost++;
    look_around(accord);
}

void stepaf_accord_set_members(struct stepaf_accord *accord, const uint8_t *is_member)
{
    for (int r = 0; r < accord->size; r++)
        accord->is_member[r] = is_member[r];
}

/* ---- what others say ---- */

/* Whom the sender knows to be lost. False: this rank is among them. */
static bool merge_lost(struct stepaf_accord *accord, const uint8_t *lost)
{
    bool is_news = false;

    for (int r = 0; r < accord->size; r++) {
        if (!lost[r])
            continue;
        if (r == accord->rank) {
            accord->is_out = true;
            if (accord->state == STEPAF_ACCORD_OPEN)
                accord->state = STEPAF_ACCORD_FAILED;
            return false;
        }
        is_news = is_news || !accord->lost[r];
        accord->n_lost += !accord->lost[r];
        accord->lost[r] = 1;
    }
    if (is_news)
        look_around(accord);
    return true;
}

/* It is about a decision that this rank makes elsewhere, or has not come to. */
static void hear_early(struct stepaf_accord_early *early, int from,
                       const struct stepaf_accord_message *message)
{
    if (message->kind != STEPAF_ACCORD_CALL && message->kind != STEPAF_ACCORD_PREPARE)
        return;
    early->is_called = true;
    if (message->kind == STEPAF_ACCORD_PREPARE && from > early->leader)
        early->leader = from;
}

static void accept_value(struct stepaf_accord *accord, int from,
                         const struct stepaf_accord_message *message)
{
    struct stepaf_accord_message accepted =
        stepaf_accord_begin(accord, STEPAF_ACCORD_ACCEPTED, message->ballot);

    if (message->ballot != (uint32_t)from + 1 || message->ballot < accord->promised ||
        !message->value ||
        !stepaf_accord_keep(accord, &accord->value, message->value, message->value_bytes))
        return;
    accord->promised = accord->accepted = message->ballot;
    accord->send(accord->arg, from, &accepted);
}

static void take_decision(struct stepaf_accord *accord, const struct stepaf_accord_message *message)
{
    bool leads = accord->lead.leads;

    if (message->value) {
        if (!stepaf_accord_keep(accord, &accord->value, message->value, message->value_bytes))
            return;
    } else if (!accord->accepted || accord->accepted < message->ballot) {
        return;
    }
    if (leads) /* others may wait for this rank */
        stepaf_accord_tell(accord, -1, accord->number);
    stepaf_accord_conclude(accord);
}

static void take_open(struct stepaf_accord *accord, int from,
                      const struct stepaf_accord_message *message)
{
    bool is_mine = message->ballot == (uint32_t)accord->rank + 1;

    switch (message->kind) {
    case STEPAF_ACCORD_PREPARE:
        promise_to(accord, from);
        break;
    case STEPAF_ACCORD_PROMISE:
        if (is_mine)
            stepaf_accord_lead_promise(accord, from, message);
        break;
    case STEPAF_ACCORD_ACCEPT:
        accept_value(accord, from, message);
        break;
    case STEPAF_ACCORD_ACCEPTED:
        if (is_mine && accord->lead.leads && accord->lead.proposes) {
            accord->lead.has_answered[from] = true;
            stepaf_accord_lead_on(accord);
        }
        break;
    case STEPAF_ACCORD_DECIDED:
        take_decision(accord, message);
        break;
    default:
        break;
    }
}

void stepaf_accord_take(struct stepaf_accord *accord, int from,
                        const struct stepaf_accord_message *message)
{
    struct stepaf_accord_message out = stepaf_accord_begin(accord, STEPAF_ACCORD_OUT, 0);

    if (accord->lost[from] && message->kind != STEPAF_ACCORD_OUT)
        accord->send(accord->arg, from, &out);
    if (accord->lost[from] || !merge_lost(accord, message->lost))
        return;
    if (message->number == accord->number + 1)
        hear_early(&accord->next, from, message);
    bool asks = message->kind == STEPAF_ACCORD_CALL || message->kind == STEPAF_ACCORD_PREPARE ||
                message->kind == STEPAF_ACCORD_ACCEPT;
    if (asks && message->number + 1 == accord->number)
        stepaf_accord_tell(accord, from, message->number);
    if (message->number != accord->number)
        return;
    if (accord->state == STEPAF_ACCORD_ELSEWHERE)
        hear_early(&accord->now, from, message);
    else if (accord->state == STEPAF_ACCORD_OPEN)
        take_open(accord, from, message);
    else if (accord->state == STEPAF_ACCORD_DONE && asks)
        stepaf_accord_tell(accord, from, accord->number);
}
