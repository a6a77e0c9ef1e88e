/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's machine, message by message: what nobody says who goes by the rules changes nothing, who
 * may not have heard a question is asked again, and who is given up, or has failed, is not waited
 * for, and does not wait. */
#include <stdlib.h>

#include "boot/consensus/consensus.h"
#include "unit.h"

enum { RANKS = 3, SAID_MAX = 32 };

/* What the machine has said. */
static struct {
    int to;
    uint32_t kind, ballot;
} said[SAID_MAX];
static int n_said;

static const uint32_t nobody[RANKS];

static void note_said(void *arg, int to, const struct stepaf_consensus_message *message)
{
    (void)arg;
    CU_ASSERT_FATAL(n_said < SAID_MAX);
    said[n_said].to = to;
    said[n_said].kind = message->kind;
    said[n_said++].ballot = message->ballot;
}

/* How often that has been said since the last look. */
static int count_said(int to, uint32_t kind)
{
    int n = 0;

    for (int i = 0; i < n_said; i++)
        n += said[i].to == to && said[i].kind == kind;
    return n;
}

static void begin_with(struct stepaf_consensus *consensus, int rank, const uint8_t *is_new)
{
    n_said = 0;
    CU_ASSERT_FATAL(stepaf_consensus_init(consensus, rank, RANKS, note_said, NULL));
    stepaf_consensus_set_new(consensus, is_new);
    stepaf_consensus_next(consensus);
    stepaf_consensus_open(consensus, "own", 3);
}

static void begin(struct stepaf_consensus *consensus, int rank)
{
    begin_with(consensus, rank, NULL);
}

static struct stepaf_consensus_message message_of(uint32_t kind, uint32_t ballot)
{
    return (struct stepaf_consensus_message){
        .kind = kind, .number = 1, .ballot = ballot, .life = 1, .gone = nobody};
}

static bool hear(struct stepaf_consensus *consensus, int from, uint32_t kind, uint32_t ballot)
{
    struct stepaf_consensus_message message = message_of(kind, ballot);

    return stepaf_consensus_take(consensus, from, &message);
}

/* With a value; of the ranks' words, that of @a absent is not in it. */
static bool hear_value(struct stepaf_consensus *consensus, int from,
                       struct stepaf_consensus_message message, int absent)
{
    uint8_t word = 'w';
    struct stepaf_consensus_blob words[RANKS];

    for (int r = 0; r < RANKS; r++)
        words[r] = (struct stepaf_consensus_blob){r == absent ? NULL : &word, r != absent};
    uint8_t *value = stepaf_consensus_value_make(words, RANKS, &message.value_bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(value);
    message.value = value;
    bool fits = stepaf_consensus_take(consensus, from, &message);
    free(value);
    return fits;
}

static void hear_accept(struct stepaf_consensus *consensus, int from)
{
    CU_ASSERT(
        hear_value(consensus, from, message_of(STEPAF_CONSENSUS_ACCEPT, (uint32_t)from + 1), -1));
}

/* Nobody can be ahead of a member by more than one life of a rank. */
static void lives_that_cannot_be(void)
{
    struct stepaf_consensus consensus;
    uint32_t gone[RANKS] = {0, 0, 0x7fffffff};
    struct stepaf_consensus_message losses = message_of(STEPAF_CONSENSUS_LOSSES, 0);

    begin(&consensus, 0);
    losses.gone = gone;
    CU_ASSERT_FALSE(stepaf_consensus_take(&consensus, 1, &losses));
    gone[2] = 3;
    CU_ASSERT_FALSE(stepaf_consensus_take(&consensus, 1, &losses));
    CU_ASSERT_EQUAL(consensus.gone[2], 0);
    gone[2] = 2; /* its second life, to which this rank has not come */
    CU_ASSERT(stepaf_consensus_take(&consensus, 1, &losses));
    CU_ASSERT_EQUAL(consensus.gone[2], 2);
    stepaf_consensus_free(&consensus);
}

/* A decision without a value is of what its leader has proposed. */
static void decided_by_its_leader(void)
{
    struct stepaf_consensus consensus;

    begin(&consensus, 2);
    hear_accept(&consensus, 0);
    CU_ASSERT_FALSE(hear(&consensus, 1, STEPAF_CONSENSUS_DECIDED, 0));
    CU_ASSERT_FALSE(hear(&consensus, 1, STEPAF_CONSENSUS_DECIDED, 1));
    CU_ASSERT(
        hear(&consensus, 1, STEPAF_CONSENSUS_DECIDED, 2)); /* this rank has accepted no such */
    CU_ASSERT_EQUAL(consensus.state, STEPAF_CONSENSUS_OPEN);
    CU_ASSERT(hear(&consensus, 0, STEPAF_CONSENSUS_DECIDED, 1));
    CU_ASSERT_EQUAL(consensus.state, STEPAF_CONSENSUS_DONE);
    stepaf_consensus_free(&consensus);
}

/* What is no value is not proposed, not accepted and not decided. */
static void values_that_are_none(void)
{
    static const uint32_t kinds[] = {STEPAF_CONSENSUS_ACCEPT, STEPAF_CONSENSUS_DECIDED};
    struct stepaf_consensus consensus;
    struct stepaf_consensus_message message = message_of(STEPAF_CONSENSUS_PROMISE, 1);

    begin(&consensus, 0);
    message.own = "b";
    message.own_bytes = 1;
    message.value = "junk";
    message.value_bytes = 4;
    for (message.accepted = 0; message.accepted <= 2; message.accepted++)
        CU_ASSERT_FALSE(stepaf_consensus_take(&consensus, 1, &message));
    message.accepted = 2; /* later than the promise is for */
    CU_ASSERT_FALSE(hear_value(&consensus, 1, message, -1));
    CU_ASSERT_FALSE(consensus.lead.has_answered[1]);
    stepaf_consensus_free(&consensus);
    begin(&consensus, 2);
    for (int i = 0; i < 2; i++) {
        message.kind = kinds[i];
        message.accepted = 0;
        CU_ASSERT_FALSE(stepaf_consensus_take(&consensus, 0, &message));
    }
    CU_ASSERT(consensus.state == STEPAF_CONSENSUS_OPEN && !consensus.accepted);
    stepaf_consensus_free(&consensus);
}

/* Who goes past a decision that has not been made does not tell others that it has. */
static void past_what_is_open(void)
{
    struct stepaf_consensus consensus;

    begin(&consensus, 1);
    hear_accept(&consensus, 0);
    stepaf_consensus_next(&consensus);
    CU_ASSERT_PTR_NULL(consensus.before.data);
    n_said = 0;
    CU_ASSERT(hear(&consensus, 2, STEPAF_CONSENSUS_CALL, 0));
    CU_ASSERT_EQUAL(n_said, 0);
    stepaf_consensus_free(&consensus);
}

/* Who calls may not have heard the question. */
static void who_calls_is_asked_again(void)
{
    struct stepaf_consensus consensus;

    begin(&consensus, 0);
    CU_ASSERT(hear(&consensus, 1, STEPAF_CONSENSUS_CALL, 0));
    CU_ASSERT_EQUAL(count_said(1, STEPAF_CONSENSUS_PREPARE), 2);
    CU_ASSERT(hear(&consensus, 1, STEPAF_CONSENSUS_PROMISE, 1));
    CU_ASSERT(hear(&consensus, 1, STEPAF_CONSENSUS_CALL, 0));
    CU_ASSERT_EQUAL(count_said(1, STEPAF_CONSENSUS_PREPARE), 2); /* it has answered */
    CU_ASSERT(hear(&consensus, 2, STEPAF_CONSENSUS_PROMISE, 1));
    CU_ASSERT(hear(&consensus, 2, STEPAF_CONSENSUS_CALL, 0));
    CU_ASSERT_EQUAL(count_said(2, STEPAF_CONSENSUS_ACCEPT), 2);
    CU_ASSERT_EQUAL(count_said(1, STEPAF_CONSENSUS_ACCEPT), 1);
    stepaf_consensus_free(&consensus);
}

/* It was lost after it had said its word, so that nothing that it says can be answered. */
static void who_is_gone_on_without_is_told(void)
{
    struct stepaf_consensus consensus;

    begin(&consensus, 1);
    stepaf_consensus_lose(&consensus, 2);
    CU_ASSERT_EQUAL(count_said(2, STEPAF_CONSENSUS_OUT), 0); /* nothing is decided yet */
    CU_ASSERT(hear_value(&consensus, 0, message_of(STEPAF_CONSENSUS_DECIDED, 0), 2));
    CU_ASSERT_EQUAL(consensus.state, STEPAF_CONSENSUS_DONE);
    CU_ASSERT_EQUAL(count_said(2, STEPAF_CONSENSUS_OUT), 1);
    CU_ASSERT_EQUAL(count_said(0, STEPAF_CONSENSUS_OUT), 0);
    stepaf_consensus_free(&consensus);
}

/* Who is out tells those that may wait for it, and whoever asks later. */
static void who_is_out_resigns(void)
{
    struct stepaf_consensus consensus;
    uint32_t gone[RANKS] = {1, 0, 0};
    struct stepaf_consensus_message out = message_of(STEPAF_CONSENSUS_OUT, 0);

    begin(&consensus, 0);
    out.gone = gone;
    CU_ASSERT(stepaf_consensus_take(&consensus, 1, &out));
    CU_ASSERT(consensus.is_out && consensus.state == STEPAF_CONSENSUS_FAILED);
    CU_ASSERT_EQUAL(count_said(1, STEPAF_CONSENSUS_RESIGN), 1);
    CU_ASSERT_EQUAL(count_said(2, STEPAF_CONSENSUS_RESIGN), 1);
    CU_ASSERT(stepaf_consensus_take(&consensus, 2, &out)); /* once is enough */
    CU_ASSERT_EQUAL(count_said(2, STEPAF_CONSENSUS_RESIGN), 1);
    CU_ASSERT(hear(&consensus, 2, STEPAF_CONSENSUS_CALL, 0));
    CU_ASSERT_EQUAL(count_said(2, STEPAF_CONSENSUS_RESIGN), 2);
    stepaf_consensus_free(&consensus);
}

/* A rank that has lost all others, by a fault of its own it may be, does not put those out that ask
 * it; and of what it holds for lost they believe nothing. */
static void who_has_failed_gives_nobody_up(void)
{
    struct stepaf_consensus consensus;
    uint32_t gone[RANKS] = {1, 1, 0};
    struct stepaf_consensus_message resign = message_of(STEPAF_CONSENSUS_RESIGN, 0);

    begin(&consensus, 2);
    stepaf_consensus_lose(&consensus, 0);
    stepaf_consensus_lose(&consensus, 1);
    CU_ASSERT_EQUAL(consensus.state, STEPAF_CONSENSUS_FAILED);
    CU_ASSERT(hear(&consensus, 0, STEPAF_CONSENSUS_PREPARE, 1));
    CU_ASSERT_EQUAL(count_said(0, STEPAF_CONSENSUS_OUT), 0);
    CU_ASSERT_EQUAL(count_said(0, STEPAF_CONSENSUS_RESIGN), 1);
    stepaf_consensus_free(&consensus);
    begin(&consensus, 0);
    resign.gone = gone;
    CU_ASSERT(stepaf_consensus_take(&consensus, 2, &resign));
    CU_ASSERT(stepaf_consensus_has_lost(&consensus, 2) && !consensus.is_out);
    CU_ASSERT_FALSE(stepaf_consensus_has_lost(&consensus, 1));
    stepaf_consensus_free(&consensus);
}

/* One that says that it has a rank's next life may be none of the job: it is no leader to wait
 * for. */
static void who_is_ahead_does_not_lead(void)
{
    struct stepaf_consensus consensus;
    struct stepaf_consensus_message prepare = message_of(STEPAF_CONSENSUS_PREPARE, 2);

    begin(&consensus, 2);
    prepare.number = 2;
    prepare.life = 2;
    CU_ASSERT(stepaf_consensus_take(&consensus, 1, &prepare));
    CU_ASSERT(consensus.next.is_called && !consensus.next.ballot);
    stepaf_consensus_free(&consensus);
}

/* A rank that the commit has admitted does not lead, and who leads knows which of these has not
 * answered. */
static void who_is_new_does_not_lead(void)
{
    static const uint8_t is_new[RANKS] = {1, 0, 1};
    struct stepaf_consensus consensus;

    begin_with(&consensus, 1, is_new);
    CU_ASSERT_EQUAL(count_said(0, STEPAF_CONSENSUS_PREPARE), 1);
    CU_ASSERT_EQUAL(count_said(2, STEPAF_CONSENSUS_PREPARE), 1);
    CU_ASSERT(hear(&consensus, 2, STEPAF_CONSENSUS_PROMISE, 2));
    CU_ASSERT_EQUAL(stepaf_consensus_awaited(&consensus), 0);
    CU_ASSERT(stepaf_consensus_is_silent(&consensus, 0));
    CU_ASSERT_FALSE(stepaf_consensus_is_silent(&consensus, 1));
    CU_ASSERT_FALSE(stepaf_consensus_is_silent(&consensus, 2));
    stepaf_consensus_lose(&consensus, 0); /* the next question */
    CU_ASSERT_EQUAL(count_said(2, STEPAF_CONSENSUS_ACCEPT), 1);
    CU_ASSERT(stepaf_consensus_is_silent(&consensus, 2));
    CU_ASSERT(hear(&consensus, 2, STEPAF_CONSENSUS_ACCEPTED, 2));
    CU_ASSERT_EQUAL(consensus.state, STEPAF_CONSENSUS_DONE);
    CU_ASSERT_FALSE(stepaf_consensus_is_silent(&consensus, 2));
    stepaf_consensus_free(&consensus);

    begin_with(&consensus, 0, is_new);
    CU_ASSERT_EQUAL(count_said(1, STEPAF_CONSENSUS_CALL), 1);
    CU_ASSERT_EQUAL(stepaf_consensus_awaited(&consensus), 1);
    CU_ASSERT_FALSE(stepaf_consensus_is_silent(&consensus, 1));
    stepaf_consensus_free(&consensus);
}

/* Where no other is left, one that is new leads, under a later ballot than any other's. */
static void who_is_new_leads_at_last(void)
{
    static const uint8_t is_new[RANKS] = {1, 0, 1};
    const uint32_t ballot = RANKS + 1;
    struct stepaf_consensus consensus;

    begin_with(&consensus, 2, is_new);
    CU_ASSERT(hear(&consensus, 1, STEPAF_CONSENSUS_PREPARE, 2));
    CU_ASSERT_EQUAL(count_said(1, STEPAF_CONSENSUS_PROMISE), 1);
    stepaf_consensus_lose(&consensus, 1);
    CU_ASSERT_EQUAL(count_said(0, STEPAF_CONSENSUS_CALL), 1);
    CU_ASSERT(hear(&consensus, 0, STEPAF_CONSENSUS_PREPARE, ballot));
    CU_ASSERT_EQUAL(count_said(0, STEPAF_CONSENSUS_PROMISE), 1);
    CU_ASSERT_FALSE(hear(&consensus, 0, STEPAF_CONSENSUS_PREPARE, ballot + 2)); /* rank 2's */
    CU_ASSERT(hear_value(&consensus, 0, message_of(STEPAF_CONSENSUS_ACCEPT, ballot), 1));
    CU_ASSERT(hear(&consensus, 0, STEPAF_CONSENSUS_DECIDED, ballot));
    CU_ASSERT_EQUAL(consensus.state, STEPAF_CONSENSUS_DONE);
    stepaf_consensus_free(&consensus);

    begin_with(&consensus, 0, is_new);
    stepaf_consensus_lose(&consensus, 1);
    CU_ASSERT_EQUAL(count_said(2, STEPAF_CONSENSUS_PREPARE), 1);
    CU_ASSERT_EQUAL(said[n_said - 1].ballot, ballot);
    stepaf_consensus_free(&consensus);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"lives that cannot be", lives_that_cannot_be},
        {"decided by its leader", decided_by_its_leader},
        {"values that are none", values_that_are_none},
        {"past a decision that is open", past_what_is_open},
        {"who calls is asked again", who_calls_is_asked_again},
        {"who is gone on without is told", who_is_gone_on_without_is_told},
        {"who is out resigns", who_is_out_resigns},
        {"who has failed gives nobody up", who_has_failed_gives_nobody_up},
        {"who is ahead does not lead", who_is_ahead_does_not_lead},
        {"who is new does not lead", who_is_new_does_not_lead},
        {"who is new leads at last", who_is_new_leads_at_last},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
