/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a job that have lost one, the last, and processes that ask for its place, without a
 * context: for the tests of the way back. GUESTS_RANKS: how many ranks the job has had, 3 if it is
 * not defined. */
#ifndef STEPAF_TEST_GUESTS_H
#define STEPAF_TEST_GUESTS_H

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

#ifndef GUESTS_RANKS
#define GUESTS_RANKS 3
#endif

enum { RANKS = GUESTS_RANKS, LOST = RANKS - 1, FLOOD = 300, LIMIT_MS = 10000, SHORT_MS = 150 };

static const char secret[] = "known to all";

struct job {
    struct stepaf_env env;
    struct stepaf_member_net *nets[RANKS]; /* NULL: it is lost, or not there yet */
    uint16_t ports[RANKS];
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
};

static inline struct stepaf_member_net *open_net_of(struct job *job, int rank, int size,
                                                    struct stepaf_member_contact *contact_p)
{
    char reason[STEPAF_MEMBER_NET_REASON_MAX];
    struct stepaf_member_net *net =
        stepaf_member_net_open(&job->env, rank, size, contact_p, reason);

    CU_ASSERT_PTR_NOT_NULL_FATAL(net);
    return net;
}

static inline struct stepaf_member_net *open_net(struct job *job, int rank,
                                                 struct stepaf_member_contact *contact_p)
{
    return open_net_of(job, rank, RANKS, contact_p);
}

/* What is told of a rank: how to call it, and a word. */
static inline void give_card(struct stepaf_member_net *net, int rank,
                             const struct stepaf_member_contact *contact, uint32_t word)
{
    struct stepaf_pack pack = {0};

    stepaf_member_contact_pack(contact, &pack);
    stepaf_pack_u32(&pack, word);
    CU_ASSERT_FALSE_FATAL(pack.failed);
    CU_ASSERT_FATAL(stepaf_member_net_set_card(net, rank, pack.data, pack.bytes));
    free(pack.data);
}

static inline uint32_t word_of(const struct stepaf_member_net *net, int rank)
{
    const struct stepaf_consensus_blob *card = stepaf_member_net_card(net, rank);
    struct stepaf_member_contact contact;
    struct stepaf_unpack unpack = stepaf_unpack_from(card->data, card->bytes);

    CU_ASSERT_FATAL(card->data && stepaf_member_contact_read(&unpack, &contact));
    return stepaf_unpack_u32(&unpack);
}

static inline void begin_job(struct job *job, bool has_secret)
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

static inline void end_job(struct job *job)
{
    for (int r = 0; r < RANKS; r++)
        stepaf_member_net_close(job->nets[r]);
    stepaf_env_free(&job->env);
}

static inline void pump_all(const struct job *job)
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

static inline void *look_thread(void *arg)
{
    struct look *look = arg;
    int64_t deadline_ns = stepaf_monotonic_ns() + look->limit_ms * 1000000LL;

    look->status = stepaf_member_net_look(look->net, look->join, deadline_ns);
    snprintf(look->text, sizeof look->text, "%s", look->status ? stepaf_last_error()->text : "");
    atomic_store(&look->is_over, true);
    return NULL;
}

/* A process that wants a rank's place in a job of that size, and knows a secret. */
static inline struct stepaf_member_net *look_in(struct job *job, int rank, int size,
                                                const char *its_secret, int64_t limit_ms,
                                                struct look *look_p)
{
    struct stepaf_member_contact contact;
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
    pthread_t thread;

    *look_p = (struct look){.net = open_net_of(job, rank, size, &contact), .limit_ms = limit_ms};
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

static inline struct stepaf_member_net *look_as(struct job *job, int rank, const char *its_secret,
                                                int64_t limit_ms, struct look *look_p)
{
    return look_in(job, rank, RANKS, its_secret, limit_ms, look_p);
}

/* One that may ask, and does. */
static inline struct stepaf_member_net *ask_with(struct job *job, const char *words)
{
    struct look look;
    struct stepaf_member_net *guest = look_as(job, LOST, secret, LIMIT_MS, &look);

    CU_ASSERT_EQUAL_FATAL(look.status, STEPAF_OK);
    CU_ASSERT_FATAL(stepaf_member_net_ask(guest, words, strlen(words)));
    return guest;
}

static inline void pump_with(struct job *job, struct stepaf_member_net *guest)
{
    pump_all(job);
    stepaf_member_net_pump(guest);
}

/* Whether both members list it, and the first knows what it says. */
static inline bool is_listed(const struct job *job)
{
    uint64_t id;

    return stepaf_member_net_is_wanted(job->nets[0], LOST) &&
           stepaf_member_net_is_wanted(job->nets[1], LOST) &&
           stepaf_member_net_words(job->nets[0], LOST, &id) &&
           !stepaf_member_net_words(job->nets[1], LOST, &id);
}

static inline void nobody_asks(const struct job *job)
{
    for (int r = 0; r < LOST; r++) {
        CU_ASSERT_FALSE(stepaf_member_net_is_wanted(job->nets[r], LOST));
        CU_ASSERT_EQUAL(stepaf_member_net_asked(job->nets[r]), 0);
        CU_ASSERT_EQUAL(stepaf_member_net_consensus(job->nets[r])->n_lost, 1);
        CU_ASSERT_EQUAL(stepaf_member_net_consensus(job->nets[r])->lives[LOST], 1);
    }
}

/* The next decision of all that are there; each says a letter. */
static inline void decide(struct job *job, bool is_next)
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

static inline void admit_at_all(struct job *job, struct stepaf_member_net *guest, uint64_t id)
{
    const struct stepaf_consensus_blob *card = stepaf_member_net_card(guest, LOST);

    for (int r = 0; r < LOST; r++) {
        CU_ASSERT(stepaf_member_net_admit(job->nets[r], LOST, id, card->data, card->bytes));
        stepaf_member_net_welcome(job->nets[r]);
    }
}

#endif
