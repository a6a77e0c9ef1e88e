/* SPDX-License-Identifier: Apache-2.0 */
/* The way back, without a context: members of a job of three have lost one, and a process that asks
 * for its place with the job's secret becomes a member by their decision, whatever connections and
 * members are lost meanwhile. */
#include <linux/tcp.h>
#include <netinet/in.h>

#include "guests.h"
#include "wireup/returns.h"

static void check_decision(struct job *job, int rank, const char *letters, int n_present)
{
    size_t offsets[RANKS + 1];
    uint8_t present[RANKS];
    void *all = NULL;
    int n = 0;

    CU_ASSERT_EQUAL_FATAL(stepaf_member_net_decision(job->nets[rank], &all, offsets, present),
                          STEPAF_OK);
    for (int r = 0; r < RANKS; r++)
        n += present[r];
    CU_ASSERT_EQUAL(n, n_present);
    CU_ASSERT(offsets[RANKS] == strlen(letters) && !memcmp(all, letters, strlen(letters)));
    free(all);
}

/* It returns, takes part in what is decided next, is lost again, and returns again. */
static void comes_back(void)
{
    struct job job;
    uint32_t epoch, n_commits;
    uint64_t id;

    begin_job(&job, true);
    for (uint32_t life = 2; life <= 4; life++) {
        struct stepaf_member_net *guest = ask_with(&job, "my words");
        CU_ASSERT(word_of(guest, 0) == 100 && word_of(guest, 1) == 101);
        PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job)));
        CU_ASSERT_EQUAL(stepaf_member_net_admission(guest), STEPAF_MEMBER_WAITS);
        decide(&job, true); /* nobody waits for it */
        check_decision(&job, 0, "ab", 2);
        const struct stepaf_consensus_blob *words = stepaf_member_net_words(job.nets[0], LOST, &id);
        CU_ASSERT_FATAL(words && words->bytes == 8 && !memcmp(words->data, "my words", 8));
        CU_ASSERT_STRING_NOT_EQUAL(stepaf_member_net_reason(job.nets[0], LOST), "");
        admit_at_all(&job, guest, id);
        CU_ASSERT_STRING_EQUAL(stepaf_member_net_reason(job.nets[0], LOST), "");
        CU_ASSERT_FALSE(stepaf_member_net_is_wanted(job.nets[0], LOST));
        PUMP_UNTIL(&job, (pump_with(&job, guest),
                          stepaf_member_net_admission(guest) == STEPAF_MEMBER_ADMITTED));
        stepaf_member_net_counts(guest, &epoch, &n_commits);
        CU_ASSERT(epoch == 7 && n_commits == 9);
        const struct stepaf_consensus *consensus = stepaf_member_net_consensus(guest);
        CU_ASSERT(consensus->lives[LOST] == life && !stepaf_consensus_has_lost(consensus, 0));
        job.nets[LOST] = guest;
        check_decision(&job, LOST, "ab", 2);
        decide(&job, true);
        for (int r = 0; r < RANKS; r++)
            check_decision(&job, r, "abc", 3);
        job.nets[LOST] = NULL;
        stepaf_member_net_close(guest);
        for (int r = 0; r < LOST; r++)
            PUMP_UNTIL(&job,
                       stepaf_consensus_has_lost(stepaf_member_net_consensus(job.nets[r]), LOST));
    }
    end_job(&job);
}

/* It is admitted before its connection to the leader has come, who has called the process before
 * it: they hear each other all the same. */
static void its_connection_is_late(void)
{
    struct job job;
    uint64_t id;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "my words");
    PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job)));
    decide(&job, true);
    CU_ASSERT_PTR_NOT_NULL_FATAL(stepaf_member_net_words(job.nets[0], LOST, &id));
    stepaf_member_host_forget(job.nets[0], LOST); /* as if it had not asked yet: */
    guest->returns->asked[0] = 0;                 /* that is on its way */
    guest->returns->again_ns = 0;
    stepaf_member_net_pump(guest);
    job.nets[0]->others[LOST].at = 99; /* all addresses have been tried, for the one before */
    admit_at_all(&job, guest, id);
    PUMP_UNTIL(&job, (pump_with(&job, guest),
                      stepaf_member_net_admission(guest) == STEPAF_MEMBER_ADMITTED));
    job.nets[LOST] = guest;
    decide(&job, true);
    for (int r = 0; r < RANKS; r++)
        check_decision(&job, r, "abc", 3);
    end_job(&job);
}

/* Its connections break as it is admitted, so that nobody can tell it; the members begin the next
 * decision, and wait for it. It calls again. */
static void nobody_can_tell_it(void)
{
    struct job job;
    uint64_t id;

    for (int is_ahead = 0; is_ahead < 2; is_ahead++) {
        begin_job(&job, true);
        struct stepaf_member_net *guest = ask_with(&job, "my words");
        PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job)));
        decide(&job, true);
        CU_ASSERT_PTR_NOT_NULL_FATAL(stepaf_member_net_words(job.nets[0], LOST, &id));
        for (int r = 0; r < LOST; r++) {
            stepaf_control_link_free(job.nets[r]->control.guests.links[LOST]);
            job.nets[r]->control.guests.links[LOST] = NULL;
            stepaf_member_host_forget(job.nets[r], LOST);
        }
        admit_at_all(&job, guest, id);
        for (int r = 0; is_ahead && r < LOST; r++) {
            char word = (char)('a' + r);
            stepaf_member_net_next(job.nets[r]);
            stepaf_member_net_decide(job.nets[r], &word, 1);
        }
        PUMP_UNTIL(&job, (pump_with(&job, guest),
                          stepaf_member_net_admission(guest) == STEPAF_MEMBER_ADMITTED));
        job.nets[LOST] = guest;
        check_decision(&job, LOST, "ab", 2);
        if (is_ahead) {
            stepaf_member_net_next(guest);
            stepaf_member_net_decide(guest, "c", 1);
            for (int r = 0; r < RANKS; r++)
                PUMP_UNTIL(&job, stepaf_member_net_consensus(job.nets[r])->state ==
                                     STEPAF_CONSENSUS_DONE);
        } else {
            decide(&job, true);
        }
        for (int r = 0; r < RANKS; r++)
            check_decision(&job, r, "abc", 3);
        end_job(&job);
    }
}

/* Its home goes before it is admitted: another member knows what it says. */
static void home_is_lost(void)
{
    struct job job;
    uint64_t id;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "my words");
    PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job)));
    stepaf_member_net_close(job.nets[0]);
    job.nets[0] = NULL;
    PUMP_UNTIL(&job, (pump_with(&job, guest), stepaf_member_net_words(job.nets[1], LOST, &id)));
    stepaf_member_net_close(guest);
    end_job(&job);
}

/* A process of another job listens at the first place by now: another secret, or another size. The
 * second place tells, at once, or after a first round of calls. */
static void look_past_another_job(bool has_other_size, bool is_late)
{
    struct stepaf_member_contact contact;
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
    struct look look = {.limit_ms = LIMIT_MS};
    pthread_t thread;
    struct job job;

    begin_job(&job, true);
    stepaf_proof_key("another", strlen("another"), key);
    if (has_other_size)
        job.nets[0]->control.place.size = RANKS - 1;
    else
        stepaf_member_net_let_ask(job.nets[0], key);
    look.net = open_net(&job, LOST, &contact);
    snprintf(look.join, sizeof look.join, "127.0.0.1:%u,127.0.0.1:%u", job.ports[0], job.ports[1]);
    CU_ASSERT_FATAL(stepaf_member_net_be_guest(look.net, job.key));
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, look_thread, &look), 0);
    for (int64_t until_ns = stepaf_monotonic_ns() + MEMBER_CONNECT_NS + SHORT_MS * 1000000LL;
         is_late && stepaf_monotonic_ns() < until_ns && !atomic_load(&look.is_over);
         (void)poll(NULL, 0, 1))
        stepaf_member_net_pump(job.nets[0]);
    PUMP_UNTIL(&job, atomic_load(&look.is_over));
    pthread_join(thread, NULL);
    UNIT_STRING(look.text, "");
    CU_ASSERT_EQUAL(look.status, STEPAF_OK);
    stepaf_member_net_close(look.net);
    job.nets[0]->control.place.size = RANKS; /* else it is not freed whole */
    end_job(&job);
}

static void one_place_is_another_jobs(void)
{
    look_past_another_job(false, false);
    look_past_another_job(true, false);
    look_past_another_job(false, true);
    look_past_another_job(true, true);
}

/* The decision that admits it admits another one as well, in whose place it has called the process
 * before: that one ends later, and is not taken for the one that is there now. */
static void another_is_admitted_with_it(void)
{
    struct job job;
    uint64_t id;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "my words"), *before = job.nets[1];
    PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job)));
    decide(&job, true);
    CU_ASSERT_PTR_NOT_NULL_FATAL(stepaf_member_net_words(job.nets[0], LOST, &id));
    job.nets[1] = NULL;
    stepaf_member_net_lose(job.nets[0], 1, "it hangs");
    const struct stepaf_consensus_blob *card = stepaf_member_net_card(before, 1);
    CU_ASSERT(stepaf_member_net_admit(job.nets[0], 1, id + 1, card->data, card->bytes));
    card = stepaf_member_net_card(guest, LOST);
    CU_ASSERT(stepaf_member_net_admit(job.nets[0], LOST, id, card->data, card->bytes));
    stepaf_member_net_welcome(job.nets[0]);
    PUMP_UNTIL(&job, (pump_with(&job, guest),
                      stepaf_member_net_admission(guest) == STEPAF_MEMBER_ADMITTED));
    CU_ASSERT_PTR_NULL(guest->control.links[1]);
    CU_ASSERT_PTR_NOT_NULL(guest->control.links[0]);
    stepaf_member_net_close(before);
    for (int i = 0; i < 20; i++) {
        pump_with(&job, guest);
        (void)poll(NULL, 0, 1);
    }
    CU_ASSERT_EQUAL(stepaf_member_net_consensus(guest)->lives[1], 2);
    CU_ASSERT_FALSE(stepaf_consensus_has_lost(stepaf_member_net_consensus(guest), 1));
    stepaf_member_net_close(guest);
    end_job(&job);
}

/* Another thread finalizes the context in which it asks: no deadline has passed. */
static void the_end_of_its_context_ends_its_wait(void)
{
    struct stepaf_ctx *ctx = calloc(1, sizeof(*ctx));
    struct look look;
    struct job job;

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    begin_job(&job, true);
    ctx->job.members.net = look_as(&job, LOST, secret, LIMIT_MS, &look);
    CU_ASSERT_EQUAL_FATAL(look.status, STEPAF_OK);
    ctx->job.boot.rank = LOST;
    atomic_store(&ctx->threads.closing, true);
    CU_ASSERT_EQUAL(stepaf_return_ask(ctx, "my words", 8, NULL, NULL, INT64_MAX),
                    STEPAF_ERR_HANDLE);
    stepaf_member_net_close(ctx->job.members.net);
    end_job(&job);
    free(ctx);
}

/* Members tell a process that asks what it does not know yet, and no more. */
static void no_news_are_short(void)
{
    enum { CARD = 1 << 18 };
    static uint8_t words[CARD];
    struct stepaf_member_contact contact = {.addresses.n = 0};
    struct stepaf_pack card = {0};
    struct look look;
    struct job job;

    begin_job(&job, true);
    contact.addresses = job.nets[1]->own;
    stepaf_member_contact_pack(&contact, &card);
    stepaf_pack_bytes(&card, words, CARD);
    for (int r = 0; r < LOST; r++)
        CU_ASSERT(stepaf_member_net_set_card(job.nets[r], 1, card.data, card.bytes));
    struct stepaf_member_net *guest = look_as(&job, LOST, secret, LIMIT_MS, &look);
    CU_ASSERT_EQUAL_FATAL(look.status, STEPAF_OK);
    CU_ASSERT_FATAL(stepaf_member_net_ask(guest, "my words", 8));
    PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job) && guest->returns->is_answered));
    for (int r = 0; r < LOST; r++) {
        struct tcp_info info;
        socklen_t bytes = sizeof info;
        CU_ASSERT_EQUAL_FATAL(
            getsockopt(guest->control.links[r]->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
        CU_ASSERT(info.tcpi_bytes_received < CARD);
    }
    /* An answer to an earlier request, since which another member has told something else. */
    guest->returns->seen++;
    struct stepaf_pack late = {0};
    stepaf_pack_u32(&late, 0);
    stepaf_pack_u64(&late, guest->returns->seen - 1);
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_STATE, .bytes = late.bytes};
    CU_ASSERT(stepaf_member_guest_take(guest, guest->control.links[0], &frame, late.data));
    free(late.data);
    stepaf_member_net_set_counts(job.nets[0], 8, 10); /* the home has news */
    PUMP_UNTIL(&job, (pump_with(&job, guest), guest->epoch == 8 && guest->n_commits == 10));
    stepaf_member_net_close(guest);
    free(card.data);
    end_job(&job);
}

/* All members end while it waits: no deadline has passed. */
static void all_members_end(void)
{
    struct stepaf_ctx *ctx = calloc(1, sizeof(*ctx));
    struct look look;
    struct job job;

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    begin_job(&job, true);
    struct stepaf_member_net *guest = look_as(&job, LOST, secret, LIMIT_MS, &look);
    CU_ASSERT_EQUAL_FATAL(look.status, STEPAF_OK);
    CU_ASSERT_FATAL(stepaf_member_net_ask(guest, "my words", 8));
    PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job)));
    CU_ASSERT_PTR_NULL(stepaf_member_net_members_over(guest));
    end_job(&job);
    ctx->job.members.net = guest;
    ctx->job.boot.rank = LOST;
    CU_ASSERT_EQUAL(stepaf_return_ask(ctx, "my words", 8, NULL, NULL, INT64_MAX),
                    STEPAF_ERR_PEER_LOST);
    CU_ASSERT_PTR_NOT_NULL(strstr(stepaf_last_error()->text, "no member is left"));
    stepaf_member_net_close(guest);
    free(ctx);
}

/* Members announce an address that the guest's host has as well, such as that of a bridge: that
 * nobody listens there says nothing about them. */
static void an_address_of_its_own(void)
{
    static const uint8_t bridge[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 9};
    struct job job;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "my words");
    PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job)));
    guest->own.n = 1;
    memcpy(guest->own.bytes[0], bridge, sizeof bridge);
    end_job(&job);
    for (int is_elsewhere = 1; is_elsewhere >= 0; is_elsewhere--) {
        for (int r = 0; r < LOST; r++) {
            struct stepaf_consensus_addresses *theirs = &guest->others[r].addresses;
            memcpy(theirs->bytes[0], bridge, sizeof bridge);
            theirs->n = 1;
            theirs->network_id = guest->own.network_id + (uint64_t)is_elsewhere;
            guest->others[r].is_over = false;
        }
        int64_t until_ns = stepaf_monotonic_ns() + (is_elsewhere ? SHORT_MS : LIMIT_MS) * 1000000LL;
        while (!stepaf_member_net_members_over(guest) && stepaf_monotonic_ns() < until_ns) {
            stepaf_member_net_pump(guest);
            (void)poll(NULL, 0, 1);
        }
        CU_ASSERT_EQUAL(!stepaf_member_net_members_over(guest), is_elsewhere);
    }
    stepaf_member_net_close(guest);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"it returns, again and again", comes_back},
        {"its connection is late", its_connection_is_late},
        {"nobody can tell it", nobody_can_tell_it},
        {"its home is lost", home_is_lost},
        {"one place is another job's", one_place_is_another_jobs},
        {"another one is admitted with it", another_is_admitted_with_it},
        {"no news are short", no_news_are_short},
        {"all members end", all_members_end},
        {"an address of its own", an_address_of_its_own},
        {"the end of its context ends its wait", the_end_of_its_context_ends_its_wait},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
