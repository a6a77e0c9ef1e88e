/* SPDX-License-Identifier: Apache-2.0 */
/* The way back, without a context: who tells a process that has been admitted. Of a job of six, the
 * first three members are to, beside its home. */
#define GUESTS_RANKS 6

#include "guests.h"

enum { TELLERS = 3, HOME = TELLERS };

static const int64_t never_ns = INT64_MAX / 2;

/* Whether the home knows what it says, and all members behind that list it. */
static bool has_asked(const struct job *job, int home)
{
    uint64_t id;

    for (int r = home; r < LOST; r++)
        if (!stepaf_member_net_is_wanted(job->nets[r], LOST))
            return false;
    return stepaf_member_net_words(job->nets[home], LOST, &id) != NULL;
}

static uint64_t id_of(const struct job *job, int home)
{
    uint64_t id = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(stepaf_member_net_words(job->nets[home], LOST, &id));
    return id;
}

static void admit_by(struct job *job, struct stepaf_member_net *guest, uint64_t id, bool are_told)
{
    const struct stepaf_consensus_blob *card = stepaf_member_net_card(guest, LOST);

    for (int r = 0; r < LOST; r++) {
        if (!job->nets[r])
            continue;
        CU_ASSERT(stepaf_member_net_admit(job->nets[r], LOST, id, card->data, card->bytes));
        if (!are_told)
            job->nets[r]->others[LOST].is_new = false;
        stepaf_member_net_welcome(job->nets[r]);
    }
}

static void await_admission(struct job *job, struct stepaf_member_net *guest)
{
    PUMP_UNTIL(
        job, (pump_with(job, guest), stepaf_member_net_admission(guest) == STEPAF_MEMBER_ADMITTED));
    job->nets[LOST] = guest;
    decide(job, true); /* it takes part */
    end_job(job);
}

/* Whether the first three are lost, at all that are there. */
static void lose_tellers(struct job *job, struct stepaf_member_net *guest, bool are_lost)
{
    for (int r = 0; r < TELLERS; r++) {
        for (int at = 0; at < LOST; at++)
            job->nets[at]->consensus.gone[r] = job->nets[at]->consensus.lives[r] - !are_lost;
        if (are_lost)
            guest->consensus.gone[r] = guest->consensus.lives[r];
    }
}

/* The first three have returned since it has heard of the members, and it does not know. */
static void its_home_tells_it(void)
{
    struct job job;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "my words");
    lose_tellers(&job, guest, true);
    PUMP_UNTIL(&job, (pump_with(&job, guest), has_asked(&job, HOME)));
    for (int i = 0; i < 50; i++) { /* it hears what they answer */
        pump_with(&job, guest);
        (void)poll(NULL, 0, 1);
    }
    lose_tellers(&job, guest, false);
    guest->returns->asked_ns = never_ns; /* it asks no more */
    uint64_t id = id_of(&job, HOME);
    decide(&job, true);
    admit_by(&job, guest, id, true);
    await_admission(&job, guest);
}

/* Nobody has told it, though its connections hold: they are the rank's by now, or not yet. */
static void it_asks_again(void)
{
    for (int is_known = 0; is_known < 2; is_known++) {
        struct job job;
        begin_job(&job, true);
        struct stepaf_member_net *guest = ask_with(&job, "my words");
        PUMP_UNTIL(&job, (pump_with(&job, guest), has_asked(&job, 0)));
        uint64_t id = id_of(&job, 0);
        decide(&job, true);
        for (int r = 0; r < LOST && !is_known; r++)
            job.nets[r]->guests[LOST].asks = false; /* as if it had not asked yet */
        admit_by(&job, guest, id, false);
        await_admission(&job, guest);
    }
}

/* As long as it waits, it hears who has returned since, and asks these as well. */
static void it_hears_who_has_returned(void)
{
    struct job job;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "my words");
    guest->consensus.gone[1] = guest->consensus.lives[1];
    for (int r = 0; r < LOST; r++) /* so they say, at first */
        job.nets[r]->consensus.gone[1] = job.nets[r]->consensus.lives[1];
    PUMP_UNTIL(&job, (pump_with(&job, guest), guest->returns->asked[LOST - 1] != 0));
    CU_ASSERT_FALSE(stepaf_member_net_is_wanted(job.nets[1], LOST));
    for (int r = 0; r < LOST; r++)
        job.nets[r]->consensus.lives[1]++;
    PUMP_UNTIL(&job, (pump_with(&job, guest), stepaf_member_net_is_wanted(job.nets[1], LOST)));
    stepaf_member_net_close(guest);
    end_job(&job);
}

/* Its home is lost, though the connection to it holds: another member is to know what it says. */
static void it_takes_another_home(void)
{
    struct job job;
    uint64_t id;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "my words");
    PUMP_UNTIL(&job, (pump_with(&job, guest), has_asked(&job, 0)));
    for (int r = 1; r < LOST; r++)
        job.nets[r]->consensus.gone[0] = job.nets[r]->consensus.lives[0];
    guest->consensus.gone[0] = guest->consensus.lives[0];
    PUMP_UNTIL(&job, (pump_with(&job, guest), stepaf_member_net_words(job.nets[1], LOST, &id)));
    CU_ASSERT_EQUAL(guest->returns->home, 1);
    stepaf_member_net_close(guest);
    end_job(&job);
}

/* Nobody knows any more what was decided when it was admitted. */
static void it_hears_that_it_is_too_late(void)
{
    struct job job;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "my words");
    PUMP_UNTIL(&job, (pump_with(&job, guest), has_asked(&job, 0)));
    uint64_t id = id_of(&job, 0);
    for (int i = 0; i < 3; i++)
        decide(&job, true);
    admit_by(&job, guest, id, false);
    for (int r = 0; r < LOST; r++)
        job.nets[r]->others[LOST].admitted_by -= 2;
    PUMP_UNTIL(&job, (pump_with(&job, guest),
                      stepaf_member_net_admission(guest) == STEPAF_MEMBER_TURNED_AWAY));
    UNIT_CONTAINS(stepaf_member_net_answer(guest), "gone on without this process");
    stepaf_member_net_close(guest);
    end_job(&job);
}

/* The members' check has rejected it: it hears the status, the sentence and the rank that it does not
 * fit with. What is no status or no rank becomes none. */
static void it_hears_the_outcome(void)
{
    static const stepaf_error_t whys[] = {
        {.status = STEPAF_ERR_MISMATCH, .peer_world_rank = 1, .text = "key 1: two shapes"},
        {.status = STEPAF_ERR_KEY, .peer_world_rank = -1, .text = "key 2: nobody"},
        {.status = (stepaf_status_t)-99999, .peer_world_rank = 1000, .text = "no such status"}};

    for (size_t i = 0; i < sizeof whys / sizeof whys[0]; i++) {
        bool is_valid = i < 2;
        struct job job;
        int peer = 77;
        begin_job(&job, true);
        struct stepaf_member_net *guest = ask_with(&job, "my words");
        PUMP_UNTIL(&job, (pump_with(&job, guest), has_asked(&job, 0)));
        stepaf_member_net_turn_away(job.nets[0], LOST, id_of(&job, 0), &whys[i]);
        PUMP_UNTIL(&job, (pump_with(&job, guest),
                          stepaf_member_net_admission(guest) == STEPAF_MEMBER_TURNED_AWAY));
        CU_ASSERT_EQUAL(stepaf_member_net_refusal(guest, &peer),
                        is_valid ? whys[i].status : STEPAF_ERR_PROTOCOL);
        CU_ASSERT_EQUAL(peer, is_valid ? whys[i].peer_world_rank : -1);
        CU_ASSERT_STRING_EQUAL(stepaf_member_net_answer(guest), whys[i].text);
        stepaf_member_net_close(guest);
        end_job(&job);
    }
}

/* Its home is stopped, with its connection still there. The members have lost that one, as another
 * one tells. */
static void its_home_is_stopped(void)
{
    struct job job;
    uint64_t id;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "my words"), *stopped = job.nets[0];
    PUMP_UNTIL(&job, (pump_with(&job, guest), has_asked(&job, 0)));
    job.nets[0] = NULL; /* nobody pumps it */
    for (int r = 1; r < LOST; r++)
        stepaf_member_net_lose(job.nets[r], 0, "it hangs");
    PUMP_UNTIL(&job, (pump_with(&job, guest), stepaf_member_net_words(job.nets[1], LOST, &id)));
    CU_ASSERT(stepaf_member_net_way(guest, 0) != NULL);
    job.nets[0] = stopped;
    stepaf_member_net_close(guest);
    end_job(&job);
}

/* What is told of a rank every second does not begin the call to it anew, at the first of its
 * addresses; of another process it does. */
static void the_same_card_lets_a_call_go_on(void)
{
    struct job job;

    begin_job(&job, true);
    const struct stepaf_consensus_blob *card = stepaf_member_net_card(job.nets[0], 1);
    struct stepaf_member_net *net = job.nets[2];
    net->others[1].at = 1;
    CU_ASSERT(stepaf_member_net_set_card(net, 1, card->data, card->bytes));
    CU_ASSERT_EQUAL(net->others[1].at, 1);
    card = stepaf_member_net_card(job.nets[0], 3);
    CU_ASSERT(stepaf_member_net_set_card(net, 1, card->data, card->bytes));
    CU_ASSERT_EQUAL(net->others[1].at, 0);
    end_job(&job);
}

/* It listens where the lost process did. A member that has not come to its admission still calls that
 * process, and gives up the call when it does: that is not the member's end. */
static void a_call_to_the_process_before_it_is_none_to_it(void)
{
    enum { LATE = 2 };
    const uint8_t word[4] = {0};
    struct job job;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "my words"), *late = job.nets[LATE];
    PUMP_UNTIL(&job, (pump_with(&job, guest), has_asked(&job, 0)));
    late->others[LOST].addresses = guest->own;
    stepaf_member_net_call_anew(late, LOST);
    CU_ASSERT(stepaf_member_net_say(late, LOST, STEPAF_CONTROL_LEAVES, word, sizeof word));
    PUMP_UNTIL(&job, late->control.links[LOST] &&
                         late->control.links[LOST]->state == STEPAF_CONTROL_GREETING);
    uint64_t id = id_of(&job, 0);
    decide(&job, true);
    job.nets[LATE] = NULL;
    admit_by(&job, guest, id, true);
    job.nets[LATE] = late;
    PUMP_UNTIL(&job, (pump_with(&job, guest),
                      stepaf_member_net_admission(guest) == STEPAF_MEMBER_ADMITTED &&
                          (!late->control.links[LOST] ||
                           late->control.links[LOST]->state == STEPAF_CONTROL_UP)));
    CU_ASSERT_PTR_NULL(late->control.links[LOST]);
    CU_ASSERT(late->others[LOST].at > 0); /* the address is left at once */
    const struct stepaf_consensus_blob *card = stepaf_member_net_card(guest, LOST);
    CU_ASSERT(stepaf_member_net_admit(late, LOST, id, card->data, card->bytes));
    stepaf_member_net_welcome(late);
    for (int i = 0; i < 50; i++) {
        pump_with(&job, guest);
        (void)poll(NULL, 0, 1);
    }
    CU_ASSERT_FALSE(stepaf_consensus_has_lost(stepaf_member_net_consensus(guest), LATE));
    await_admission(&job, guest);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"its home tells it", its_home_tells_it},
        {"it asks again", it_asks_again},
        {"it hears who has returned", it_hears_who_has_returned},
        {"it takes another home", it_takes_another_home},
        {"its home is stopped", its_home_is_stopped},
        {"it hears that it is too late", it_hears_that_it_is_too_late},
        {"it hears the outcome", it_hears_the_outcome},
        {"the same card lets a call go on", the_same_card_lets_a_call_go_on},
        {"a call to the process before it is none to it",
         a_call_to_the_process_before_it_is_none_to_it},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
