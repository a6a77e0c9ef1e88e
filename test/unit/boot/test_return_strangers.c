/* SPDX-License-Identifier: Apache-2.0 */
/* Who asks for a lost rank's place and does not become a member: without the secret, for a place
 * that is not free, twice, with words that do not fit; strangers who repeat what they have heard,
 * and flood the port. */
#include "guests.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/proof.h"
#include "boot/member_net_inside.h"

static void other_secret(void)
{
    struct job job;
    struct look look;

    begin_job(&job, true);
    struct stepaf_member_net *guest = look_as(&job, LOST, "guessed", LIMIT_MS, &look);
    CU_ASSERT_EQUAL(look.status, STEPAF_ERR_BOOT);
    UNIT_CONTAINS(look.text, "other end has a different secret");
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

static struct stepaf_member_net *ask_first(struct job *job, uint64_t *id_p)
{
    struct stepaf_member_net *first = ask_with(job, "first");

    PUMP_UNTIL(job, (pump_with(job, first), is_listed(job)));
    (void)stepaf_member_net_words(job->nets[0], LOST, id_p);
    return first;
}

/* The second to ask has the place; the first is told so, and what is decided for the first does not
 * hold for the second. */
static void two_ask(void)
{
    struct job job;
    uint64_t first_id, second_id;

    begin_job(&job, true);
    struct stepaf_member_net *first = ask_first(&job, &first_id);
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
    UNIT_CONTAINS(stepaf_member_net_answer(second), "another process has taken the rank's place");
    stepaf_member_net_close(first);
    stepaf_member_net_close(second);
    end_job(&job);
}

/* Whoever is pushed out does not come again: the second keeps the place. */
static void two_go_on_asking(void)
{
    struct job job;
    uint64_t first_id, second_id;

    begin_job(&job, true);
    struct stepaf_member_net *first = ask_first(&job, &first_id);
    struct stepaf_member_net *second = ask_with(&job, "second");
    PUMP_UNTIL(&job, (stepaf_member_net_pump(first), pump_with(&job, second),
                      stepaf_member_net_admission(first) == STEPAF_MEMBER_TURNED_AWAY));
    UNIT_CONTAINS(stepaf_member_net_answer(first), "another process asks for the rank's place");
    PUMP_UNTIL(&job, (pump_with(&job, second), is_listed(&job)));
    for (int i = 0; i < SHORT_MS; i++) {
        stepaf_member_net_pump(first);
        pump_with(&job, second);
        (void)poll(NULL, 0, 1);
    }
    CU_ASSERT(is_listed(&job) && stepaf_member_net_words(job.nets[0], LOST, &second_id) &&
              second_id != first_id);
    CU_ASSERT_EQUAL(stepaf_member_net_admission(second), STEPAF_MEMBER_WAITS);
    stepaf_member_net_close(first);
    stepaf_member_net_close(second);
    end_job(&job);
}

/* Whether both members list it, and one of them knows what it says: the home may be either. */
static bool is_at_home(const struct job *job)
{
    uint64_t id;
    int n_words = 0, n_wanted = 0;

    for (int r = 0; r < LOST; r++) {
        n_wanted += stepaf_member_net_is_wanted(job->nets[r], LOST);
        n_words += stepaf_member_net_words(job->nets[r], LOST, &id) != NULL;
    }
    return n_wanted == LOST && n_words == 1;
}

/* Of two that come at once, at each member in another order, one is turned away. */
static void two_at_once(void)
{
    struct job job;

    for (int i = 0; i < 6; i++) {
        begin_job(&job, true);
        struct stepaf_member_net *guests[2] = {ask_with(&job, "first"), ask_with(&job, "second")};
        int n_away = 0, n_after = 0;
        int64_t until_ns = stepaf_monotonic_ns() + LIMIT_MS * 1000000LL;
        while (n_after < SHORT_MS && stepaf_monotonic_ns() < until_ns) {
            stepaf_member_net_pump(guests[i % 2]);
            pump_with(&job, guests[!(i % 2)]);
            (void)poll(NULL, 0, 1);
            n_away = 0;
            for (int g = 0; g < 2; g++)
                n_away += stepaf_member_net_admission(guests[g]) == STEPAF_MEMBER_TURNED_AWAY;
            n_after += n_away > 0;
        }
        CU_ASSERT_EQUAL(n_away, 1);
        CU_ASSERT(is_at_home(&job));
        for (int g = 0; g < 2; g++)
            stepaf_member_net_close(guests[g]);
        end_job(&job);
    }
}

/* One asks and asks, and takes no answer: what waits for it does not grow. */
static void asks_and_takes_nothing(void)
{
    enum { ASKS = 4000, ANSWER_MOST = 4096, BUFFER = 4096 };
    struct job job;
    struct stepaf_pack ask = {0};
    size_t most = 0;

    begin_job(&job, true);
    struct stepaf_member_net *guest = ask_with(&job, "words");
    PUMP_UNTIL(&job, (pump_with(&job, guest), is_listed(&job)));
    const int few = BUFFER; /* bytes that the system takes for it */
    (void)setsockopt(guest->control.links[0]->fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
    (void)setsockopt(job.nets[0]->control.guests.links[LOST]->fd, SOL_SOCKET, SO_SNDBUF, &few,
                     sizeof few);
    stepaf_pack_u32(&ask, 1);
    stepaf_pack_u64(&ask, guest->returns->id);
    for (int i = 0; i < ASKS; i++) {
        CU_ASSERT(stepaf_member_net_say(guest, 0, STEPAF_CONTROL_ASK, ask.data, ask.bytes));
        stepaf_member_net_pump(job.nets[0]);
        const struct stepaf_control_link *link = job.nets[0]->control.guests.links[LOST];
        CU_ASSERT_PTR_NOT_NULL_FATAL(link);
        most = link->out.bytes > most ? link->out.bytes : most;
    }
    CU_ASSERT(most > 0 && most <= ANSWER_MOST);
    free(ask.data);
    stepaf_member_net_close(guest);
    end_job(&job);
}

/* Who knows the secret says, in the name of a rank that lives, that the member he says it to is
 * lost. */
static void speaks_for_another(void)
{
    uint32_t gone[RANKS] = {1, 0, 1};
    struct stepaf_consensus_message losses = {
        .kind = STEPAF_CONSENSUS_LOSSES, .life = 1, .gone = gone};
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_CONSENSUS};
    struct job job;

    begin_job(&job, true);
    struct stepaf_control_link link = {.control = &job.nets[0]->control, .fd = -1, .rank = 1};
    uint8_t *data = stepaf_consensus_message_pack(&losses, RANKS, &frame.bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    CU_ASSERT(stepaf_member_host_take(job.nets[0], &link, &frame, data));
    CU_ASSERT_FALSE(stepaf_member_net_consensus(job.nets[0])->is_out);
    free(data);
    end_job(&job);
}

/* ---- what does not fit ---- */

/* Who knows the secret says something else than a guest does: his connection ends, and nothing is
 * left of him. */
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
        CU_ASSERT_FALSE(stepaf_member_guest_take(guest, NULL, &frame, data));
    }
    memset(data, 0xff, 4096);
    struct stepaf_control_frame frame = {.type = STEPAF_CONTROL_STATE, .bytes = 4096};
    CU_ASSERT_FALSE(stepaf_member_guest_take(guest, NULL, &frame, data));
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

/* Who has heard a guest's hello says the same; who knows nothing keeps the port busy. The guest
 * comes in. */
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

/* ---- a member that is damaged ---- */

static void prove(const struct stepaf_member_net *net, uint64_t kind,
                  const struct stepaf_control_hello *hello, const uint8_t *nonce, uint8_t *proof)
{
    struct stepaf_control_claim claim = {.kind = kind, .hello = *hello};

    if (nonce)
        memcpy(claim.nonce, nonce, sizeof claim.nonce);
    stepaf_proof_make(net->control.place.key, &claim, sizeof claim, proof);
}

/* Call a member as rank @a from, with the key of the job. Whether it closes the connection. */
static bool is_closed_to(struct stepaf_member_net *net, uint16_t port, uint32_t from)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct stepaf_control_opening opening = {.hello = {.magic = stepaf_control_hello_magic,
                                                       .version = STEPAF_CONTROL_VERSION,
                                                       .from = from,
                                                       .size = 2,
                                                       .life = 1}};
    struct stepaf_control_answer answer = {.magic = stepaf_control_answer_magic};
    struct stepaf_control_challenge challenge;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool is_closed = false;
    char byte;

    CU_ASSERT_EQUAL_FATAL(connect(fd, (struct sockaddr *)&in, sizeof in), 0);
    memcpy(opening.hello.session, net->control.session, sizeof opening.hello.session);
    prove(net, stepaf_control_hello_magic, &opening.hello, NULL, opening.proof);
    CU_ASSERT_EQUAL(send(fd, &opening, sizeof opening, 0), sizeof opening);
    for (int i = 0; i < LIMIT_MS; i++) {
        stepaf_member_net_pump(net);
        if (recv(fd, &challenge, sizeof challenge, MSG_PEEK | MSG_DONTWAIT) == sizeof challenge)
            break;
        usleep(1000);
    }
    if (recv(fd, &challenge, sizeof challenge, MSG_DONTWAIT) == sizeof challenge) {
        prove(net, stepaf_control_answer_magic, &opening.hello, challenge.nonce, answer.proof);
        CU_ASSERT_EQUAL(send(fd, &answer, sizeof answer, 0), sizeof answer);
        for (int i = 0; i < LIMIT_MS && !is_closed; i++) {
            stepaf_member_net_pump(net);
            usleep(1000);
            is_closed = recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
        }
    }
    close(fd);
    return is_closed;
}

/* A number of no rank, also one that is negative as an int, costs the caller its connection. */
static void a_rank_that_is_none(void)
{
    static const uint32_t numbers[] = {2, 1000, 0x7fffffff, 0x80000000, 0xffff0000, 0xffffffff};
    static char none[] = "";
    const struct stepaf_env env = {.member_ports = none, .net_if = none};
    char reason[STEPAF_MEMBER_NET_REASON_MAX];
    struct stepaf_member_contact contacts[2];

    struct stepaf_member_net *net = stepaf_member_net_open(&env, 0, 2, &contacts[0], reason);
    CU_ASSERT_PTR_NOT_NULL_FATAL(net);
    contacts[1] = contacts[0];
    CU_ASSERT_TRUE_FATAL(stepaf_member_net_meet(net, contacts));
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        CU_ASSERT_TRUE(is_closed_to(net, contacts[0].addresses.port, numbers[i]));
    stepaf_member_net_close(net);
}

/* It takes the job for a larger or smaller one: it hears both sizes as soon as it calls, also as a
 * rank that the job does not have. */
static void who_says_another_size_hears_both(void)
{
    static const struct {
        int rank, size;
        const char *text;
    } cases[] = {{LOST, RANKS + 1, "the job there has 3 ranks, but this process has 4 "},
                 {RANKS, RANKS + 1, "the job there has 3 ranks, but this process has 4 "},
                 {RANKS - 2, RANKS - 1, "the job there has 3 ranks, but this process has 2 "}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct look look;
        struct job job;
        begin_job(&job, true);
        struct stepaf_member_net *guest =
            look_in(&job, cases[i].rank, cases[i].size, secret, LIMIT_MS, &look);
        CU_ASSERT_EQUAL(look.status, STEPAF_ERR_BOOT);
        UNIT_CONTAINS(look.text, cases[i].text);
        UNIT_CONTAINS(look.text, "STEPAF_SIZE");
        nobody_asks(&job);
        stepaf_member_net_close(guest);
        end_job(&job);
    }
    struct look look; /* without the secret nothing is said of it */
    struct job job;
    begin_job(&job, true);
    struct stepaf_member_net *guest =
        look_in(&job, LOST, RANKS + 1, "another one", LIMIT_MS, &look);
    CU_ASSERT_EQUAL(look.status, STEPAF_ERR_BOOT);
    UNIT_CONTAINS(look.text, "the other end has a different secret");
    stepaf_member_net_close(guest);
    end_job(&job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"another secret", other_secret},
        {"who says another size hears both", who_says_another_size_hears_both},
        {"a job without a secret", no_secret},
        {"a place that is taken", place_is_taken},
        {"two want one place", two_ask},
        {"two go on asking", two_go_on_asking},
        {"asks and takes nothing", asks_and_takes_nothing},
        {"two at once", two_at_once},
        {"a word for another", speaks_for_another},
        {"words that do not fit", wrong_words},
        {"a state that is none", wrong_state},
        {"strangers", strangers},
        {"a rank that is none", a_rank_that_is_none},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
