/* SPDX-License-Identifier: Apache-2.0 */
/* The way back, without a context: members of a job of three have lost one, and a process asks for its place, with
 * the job's secret and without it, for a place that is not free, twice, with words that do not fit; strangers repeat
 * what they have heard, and flood the port. Only the one that members admit by their decision becomes one. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/time.h"
#include "boot/member_net_inside.h"
#include "unit.h"

enum { RANKS = 3, LOST = 2, FLOOD = 300, LIMIT_MS = 10000, SHORT_MS = 150 };

static const char secret[] = "known to all";

struct job {
    struct stepaf_env env;
    struct stepaf_member_net *nets[RANKS]; /* NULL: it is lost, or not there yet */
    uint16_t ports[RANKS];
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
};

static struct stepaf_member_net *open_net(struct job *job, int rank,
                                          struct stepaf_member_contact *contact_p)
{
    char reason[STEPAF_MEMBER_NET_REASON_MAX];
    struct stepaf_member_net *net =
        stepaf_member_net_open(&job->env, rank, RANKS, contact_p, reason);

    CU_ASSERT_PTR_NOT_NULL_FATAL(net);
    return net;
}

/* What is told of a rank: how to call it, and a word. */
static void give_card(struct stepaf_member_net *net, int rank,
                      const struct stepaf_member_contact *contact, uint32_t word)
{
    struct stepaf_pack pack = {0};

    stepaf_member_contact_pack(contact, &pack);
    stepaf_pack_u32(&pack, word);
    CU_ASSERT_FALSE_FATAL(pack.failed);
    CU_ASSERT_FATAL(stepaf_member_net_set_card(net, rank, pack.data, pack.bytes));
    free(pack.data);
}

static uint32_t word_of(const struct stepaf_member_net *net, int rank)
{
    const struct stepaf_consensus_blob *card = stepaf_member_net_card(net, rank);
    struct stepaf_member_contact contact;
    struct stepaf_unpack unpack = stepaf_unpack_from(card->data, card->bytes);

    CU_ASSERT_FATAL(card->data && stepaf_member_contact_read(&unpack, &contact));
    return stepaf_unpack_u32(&unpack);
}

static void begin_job(struct job *job, bool has_secret)
{
    struct stepaf_member_contact contacts[RANKS];

    memset(job, 0, sizeof *job);
    CU_ASSERT_EQUAL_FATAL(stepaf_env_load(&job->env), STEPAF_OK);
    CU_ASSERT_FATAL(stepaf_proof_ready());
    stepaf_proof_key(secret, strlen(secret), job->key);
    for (int r = 0; r < RANKS; r++) {
        job->nets[r] = open_net(job, r, &contacts[r]);
        job->ports[r] = contacts[r].addresses.port;
    }
    for (int r = 0; r < RANKS; r++) {
        CU_ASSERT_FATAL(stepaf_member_net_meet(job->nets[r], contacts));
        if (has_secret)
            stepaf_member_net_let_ask(job->nets[r], job->key);
        for (int other = 0; other < RANKS; other++)
            give_card(job->nets[r], other, &contacts[other], 100 + (uint32_t)other);
        stepaf_member_net_set_counts(job->nets[r], 7, 9);
    }
    stepaf_member_net_close(job->nets[LOST]);
    job->nets[LOST] = NULL;
    for (int r = 0; r < LOST; r++)
        stepaf_member_net_lose(job->nets[r], LOST, "it has ended");
}

static void end_job(struct job *job)
{
    for (int r = 0; r < RANKS; r++)
        stepaf_member_net_close(job->nets[r]);
    stepaf_env_free(&job->env);
}

static void pump_all(const struct job *job)
{
    for (int r = 0; r < RANKS; r++)
        if (job->nets[r])
            stepaf_member_net_pump(job->nets[r]);
}

/* Until something holds, or for too long. */
#define PUMP_UNTIL(job_, condition_)                                     \
    do {                                                                 \
        int64_t until_ns = stepaf_monotonic_ns() + LIMIT_MS * 1000000LL; \
        while (!(condition_) && stepaf_monotonic_ns() < until_ns) {      \
            pump_all(job_);                                              \
            (void)poll(NULL, 0, 1);                                      \
        }                                                                \
        CU_ASSERT((condition_) ? 1 : 0);                                 \
    } while (0)

/* ---- a guest that looks, in a thread, since it waits for members that are of this process, too ---- */

struct look {
    struct stepaf_member_net *net;
    char join[128];
    int64_t limit_ms;
    stepaf_status_t status;
    char text[STEPAF_ERROR_TEXT_MAX];
    _Atomic bool is_over;
};

static void *look_thread(void *arg)
{
    struct look *look = arg;
    int64_t deadline_ns = stepaf_monotonic_ns() + look->limit_ms * 1000000LL;

    look->status = stepaf_member_net_look(look->net, look->join, deadline_ns);
    snprintf(look->text, sizeof look->text, "%s", look->status ? stepaf_last_error()->text : "");
    atomic_store(&look->is_over, true);
    return NULL;
}

/* A process that wants a rank's place, and knows a secret. */
static struct stepaf_member_net *look_as(struct job *job, int rank, const char *its_secret,
                                         int64_t limit_ms, struct look *look_p)
{
    struct stepaf_member_contact contact;
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
    pthread_t thread;

    *look_p = (struct look){.net = open_net(job, rank, &contact), .limit_ms = limit_ms};
    snprintf(look_p->join, sizeof look_p->join, "127.0.0.1:1,127.0.0.1:%u", job->ports[0]);
    stepaf_proof_key(its_secret, strlen(its_secret), key);
    CU_ASSERT_FATAL(stepaf_member_net_be_guest(look_p->net, key));
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, look_thread, look_p), 0);
    while (!atomic_load(&look_p->is_over)) {
        pump_all(job);
        (void)poll(NULL, 0, 1);
    }
    pthread_join(thread, NULL);
    if (!look_p->status)
        give_card(look_p->net, rank, &contact, 200);
    return look_p->net;
}

/* One that may ask, and does. */
static struct stepaf_member_net *ask_with(struct job *job, const char *words)
{
    struct look look;
    struct stepaf_member_net *guest = look_as(job, LOST, secret, LIMIT_MS, &look);

    CU_ASSERT_EQUAL_FATAL(look.status, STEPAF_OK);
    CU_ASSERT_FATAL(stepaf_member_net_ask(guest, words, strlen(words)));
    return guest;
}

static void pump_with(struct job *job, struct stepaf_member_net *guest)
{
    pump_all(job);
    stepaf_member_net_pump(guest);
}

/* Whether both members list it, and the first knows what it says. */
static bool is_listed(const struct job *job)
{
    uint64_t id;

    return stepaf_member_net_is_wanted(job->nets[0], LOST) &&
           stepaf_member_net_is_wanted(job->nets[1], LOST) &&
           stepaf_member_net_words(job->nets[0], LOST, &id) &&
           !stepaf_member_net_words(job->nets[1], LOST, &id);
}

static void nobody_asks(const struct job *job)
{
    for (int r = 0; r < LOST; r++) {
        CU_ASSERT_FALSE(stepaf_member_net_is_wanted(job->nets[r], LOST));
        CU_ASSERT_EQUAL(stepaf_member_net_asked(job->nets[r]), 0);
        CU_ASSERT_EQUAL(stepaf_member_net_consensus(job->nets[r])->n_lost, 1);
        CU_ASSERT_EQUAL(stepaf_member_net_consensus(job->nets[r])->lives[LOST], 1);
    }
}

/* ---- tests ---- */

/* The next decision of all that are there; each says a letter. */
static void decide(struct job *job, bool is_next)
{
    for (int r = 0; r < RANKS; r++)
        if (job->nets[r]) {
            char word = (char)('a' + r);
            if (is_next)
                stepaf_member_net_next(job->nets[r]);
            stepaf_member_net_decide(job->nets[r], &word, 1);
        }
    for (int r = 0; r < RANKS; r++)
        if (job->nets[r])
            PUMP_UNTIL(job,
                       stepaf_member_net_consensus(job->nets[r])->state == STEPAF_CONSENSUS_DONE);
}

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

static void admit_at_all(struct job *job, struct stepaf_member_net *guest, uint64_t id)
{
    const struct stepaf_consensus_blob *card = stepaf_member_net_card(guest, LOST);

    for (int r = 0; r < LOST; r++) {
        CU_ASSERT(stepaf_member_net_admit(job->nets[r], LOST, id, card->data, card->bytes));
        stepaf_member_net_welcome(job->nets[r]);
    }
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
        admit_at_all(&job, guest, id);
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

/* It is admitted before its connection to the leader has come, who has called the process before it: they hear each
 * other all the same. */
static void its_connection_is_late(void)
{
    struct job job;
    uint64_t id;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "my words");
    PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job)));
    decide(&job, true);
    CU_ASSERT_PTR_NOT_NULL_FATAL(stepaf_member_net_words(job.nets[0], LOST, &id));
    job.nets[0]->guests[LOST].asks = false; /* as if it had not asked yet */
    job.nets[0]->others[LOST].at = 99;      /* all addresses have been tried, for the one before */
    admit_at_all(&job, guest, id);
    PUMP_UNTIL(&job, (pump_with(&job, guest),
                      stepaf_member_net_admission(guest) == STEPAF_MEMBER_ADMITTED));
    job.nets[LOST] = guest;
    decide(&job, true);
    for (int r = 0; r < RANKS; r++)
        check_decision(&job, r, "abc", 3);
    end_job(&job);
}

/* Its connections break as it is admitted, so that nobody can tell it; the members begin the next decision, and wait
 * for it. It calls again. */
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

static void other_secret(void)
{
    struct job job;
    struct look look;

    begin_job(&job, true);
    struct stepaf_member_net *guest = look_as(&job, LOST, "guessed", LIMIT_MS, &look);
    CU_ASSERT_EQUAL(look.status, STEPAF_ERR_BOOT);
    UNIT_CONTAINS(look.text, "secret there is another");
    UNIT_CONTAINS(look.text, "STEPAF_SECRET");
    nobody_asks(&job);
    stepaf_member_net_close(guest);
    end_job(&job);
}

/* A job that has none lets nobody in, whatever secret he knows. */
static void no_secret(void)
{
    struct job job;
    struct look look;

    begin_job(&job, false);
    for (int i = 0; i < 2; i++) {
        struct stepaf_member_net *guest = look_as(&job, LOST, i ? "" : secret, SHORT_MS, &look);
        CU_ASSERT_EQUAL(look.status, STEPAF_ERR_TIMEOUT);
        stepaf_member_net_close(guest);
    }
    nobody_asks(&job);
    end_job(&job);
}

/* A rank that lives cannot be driven out by who says that he is it. */
static void place_is_taken(void)
{
    struct job job;
    struct look look;

    begin_job(&job, true);
    struct stepaf_member_net *guest = look_as(&job, 1, secret, SHORT_MS, &look);
    CU_ASSERT_EQUAL(look.status, STEPAF_ERR_TIMEOUT);
    UNIT_CONTAINS(look.text, "world rank 1 is not lost");
    nobody_asks(&job);
    CU_ASSERT_FALSE(stepaf_member_net_is_wanted(job.nets[0], 1));
    stepaf_member_net_close(guest);
    guest = look_as(&job, 0, secret, SHORT_MS, &look); /* not even of who is asked */
    CU_ASSERT_EQUAL(look.status, STEPAF_ERR_TIMEOUT);
    nobody_asks(&job);
    stepaf_member_net_close(guest);
    end_job(&job);
}

/* The second to ask has the place; the first is told so, and what is decided for the first does not hold for the
 * second. */
static void two_ask(void)
{
    struct job job;
    uint64_t first_id, second_id;

    begin_job(&job, true);
    struct stepaf_member_net *first = ask_with(&job, "first");
    PUMP_UNTIL(&job, (pump_with(&job, first), is_listed(&job)));
    (void)stepaf_member_net_words(job.nets[0], LOST, &first_id);
    struct stepaf_member_net *second = ask_with(&job, "second");
    PUMP_UNTIL(&job,
               (pump_with(&job, second),
                stepaf_member_net_words(job.nets[0], LOST, &second_id) && second_id != first_id));
    PUMP_UNTIL(&job, (pump_with(&job, second), is_listed(&job)));
    CU_ASSERT_EQUAL(stepaf_member_net_asked(job.nets[0]), 2);
    decide(&job, true);
    admit_at_all(&job, first, first_id); /* as it was listed when the decision was made */
    PUMP_UNTIL(&job, (pump_with(&job, second),
                      stepaf_member_net_admission(second) == STEPAF_MEMBER_TURNED_AWAY));
    UNIT_CONTAINS(stepaf_member_net_answer(second), "another process has taken the place");
    stepaf_member_net_close(first);
    stepaf_member_net_close(second);
    end_job(&job);
}

/* ---- what does not fit ---- */

/* Who knows the secret says something else than a guest does: his connection ends, and nothing is left of him. */
static void wrong_words(void)
{
    static const struct {
        uint32_t type;
        size_t bytes;
    } wrong[] = {{STEPAF_CONTROL_ASK, 3},    {STEPAF_CONTROL_ASK, 0},
                 {STEPAF_CONTROL_STATE, 8},  {STEPAF_CONTROL_CONSENSUS, 100},
                 {STEPAF_CONTROL_LOST, 0},   {STEPAF_CONTROL_TABLE, 16},
                 {STEPAF_CONTROL_REFUSE, 0}, {999, 0}};
    static const uint8_t data[128] = {1};
    struct job job;

    begin_job(&job, true);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct stepaf_member_net *guest = ask_with(&job, "my words");
        PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job)));
        struct stepaf_control_link *link = stepaf_member_net_way(guest, 0);
        CU_ASSERT_PTR_NOT_NULL_FATAL(link);
        struct stepaf_control_frame frame = {.type = wrong[i].type, .bytes = wrong[i].bytes};
        stepaf_control_send(link, &frame, data);
        PUMP_UNTIL(&job, !stepaf_member_net_is_wanted(job.nets[0], LOST));
        CU_ASSERT_EQUAL(stepaf_member_net_consensus(job.nets[0])->n_lost, 1);
        stepaf_member_net_close(guest);
        PUMP_UNTIL(&job, !stepaf_member_net_is_wanted(job.nets[1], LOST));
    }
    end_job(&job);
}

/* A member tells a guest what is cut short, or no state at all: that changes nothing there. */
static void wrong_state(void)
{
    struct job job;
    struct look look;

    begin_job(&job, true);
    struct stepaf_member_net *guest = look_as(&job, LOST, secret, LIMIT_MS, &look);
    uint8_t *data = calloc(1, 4096);
    for (size_t bytes = 0; bytes < 4096; bytes += bytes < 256 ? 1 : 97) {
        struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_STATE, .bytes = bytes};
        CU_ASSERT_FALSE(stepaf_member_guest_take(guest, &frame, data));
    }
    memset(data, 0xff, 4096);
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_STATE, .bytes = 4096};
    CU_ASSERT_FALSE(stepaf_member_guest_take(guest, &frame, data));
    CU_ASSERT_EQUAL(stepaf_member_net_admission(guest), STEPAF_MEMBER_WAITS);
    CU_ASSERT_EQUAL(stepaf_member_net_consensus(guest)->lives[0], 1);
    free(data);
    stepaf_member_net_close(guest);
    end_job(&job);
}

static int call_port(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Who has heard a guest's hello says the same; who knows nothing keeps the port busy. The guest comes in. */
static void strangers(void)
{
    struct stepaf_control_opening opening = {.hello = {.magic = stepaf_control_hello_magic,
                                                       .version = STEPAF_CONTROL_VERSION,
                                                       .from = LOST,
                                                       .to = stepaf_control_anybody,
                                                       .size = RANKS,
                                                       .nonce = {1, 2, 3}}};
    struct stepaf_control_claim claim = {.kind = stepaf_control_hello_magic,
                                         .hello = opening.hello};
    struct stepaf_control_challenge challenge;
    struct stepaf_control_answer answer = {.magic = stepaf_control_answer_magic};
    static int fds[FLOOD];
    struct job job;

    begin_job(&job, true);
    stepaf_proof_make(job.key, &claim, sizeof claim, opening.proof);
    int copy = call_port(job.ports[0]);
    CU_ASSERT_EQUAL(send(copy, &opening, sizeof opening, 0), sizeof opening);
    ssize_t got = 0;
    PUMP_UNTIL(&job, got > 0 || (got = recv(copy, &challenge, sizeof challenge, MSG_DONTWAIT)) > 0);
    CU_ASSERT(got == sizeof challenge && challenge.magic == stepaf_control_challenge_magic);
    CU_ASSERT_EQUAL(send(copy, &answer, sizeof answer, 0), sizeof answer);
    PUMP_UNTIL(&job, recv(copy, &challenge, sizeof challenge, MSG_DONTWAIT) == 0);
    close(copy);
    nobody_asks(&job);
    for (int i = 0; i < FLOOD; i++) {
        fds[i] = call_port(job.ports[0]);
        pump_all(&job);
    }
    struct stepaf_member_net *guest = ask_with(&job, "my words");
    PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job)));
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    stepaf_member_net_close(guest);
    end_job(&job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"it returns, again and again", comes_back},
        {"its connection is late", its_connection_is_late},
        {"nobody can tell it", nobody_can_tell_it},
        {"its home is lost", home_is_lost},
        {"another secret", other_secret},
        {"a job without a secret", no_secret},
        {"a place that is taken", place_is_taken},
        {"two want one place", two_ask},
        {"words that do not fit", wrong_words},
        {"a state that is none", wrong_state},
        {"strangers", strangers},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
