/* SPDX-License-Identifier: Apache-2.0 */
/* The greeting, on both sides (wire.h). A connection belongs to no rank before a proof over numbers
 * of this connection has arrived, and what a stranger sends changes nothing. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/time.h"
#include "boot/control/control.h"
#include "boot/control/socket.h"

/* The input of the keys of both directions, besides the claim. */
static const uint64_t from_caller = 0x454c4c4143204653, from_listener = 0x4e45545349204653;

static const uint8_t *key_for(const struct stepaf_control_link *link)
{
    return stepaf_control_is_by_guest(link) ? link->control->guests.key : link->control->place.key;
}

static struct stepaf_control_claim claim_as(const struct stepaf_control_link *link, uint64_t kind)
{
    struct stepaf_control_claim claim = {.kind = kind, .hello = link->hello};

    if (kind != stepaf_control_hello_magic)
        memcpy(claim.nonce, link->nonce, sizeof claim.nonce);
    return claim;
}

static void prove_claim(const struct stepaf_control_link *link, uint64_t kind, uint8_t *proof_p)
{
    struct stepaf_control_claim claim = claim_as(link, kind);

    stepaf_proof_make(key_for(link), &claim, sizeof claim, proof_p);
}

static bool is_proven_by(const struct stepaf_control_link *link, uint64_t kind,
                         const uint8_t *proof)
{
    struct stepaf_control_claim claim = claim_as(link, kind);

    return stepaf_proof_is_right(key_for(link), &claim, sizeof claim, proof);
}

/* Send a message of the greeting: a socket accepts the few bytes as a whole. */
static bool say_whole(struct stepaf_control_link *link, const void *message, size_t bytes)
{
    ssize_t sent = send(link->fd, message, bytes, MSG_NOSIGNAL);

    if (sent == (ssize_t)bytes)
        return true;
    stepaf_control_link_close(link, NULL, sent < 0 ? errno : ENOBUFS);
    return false;
}

/* Take a message from what has arrived; returns false if it is incomplete. */
static bool hear_message(struct stepaf_control_link *link, void *message_p, size_t bytes)
{
    if (link->have < bytes)
        return false;
    memcpy(message_p, link->in, bytes);
    link->have -= bytes;
    memmove(link->in, link->in + bytes, link->have);
    return true;
}

static void make_keys(struct stepaf_control_link *link)
{
    uint64_t mine = link->has_called ? from_caller : from_listener;

    prove_claim(link, mine, link->seal_out.key);
    prove_claim(link, mine ^ from_caller ^ from_listener, link->seal_in.key);
}

void stepaf_control_greet(struct stepaf_control_link *link)
{
    const struct stepaf_control *control = link->control;
    struct stepaf_control_opening opening;

    link->hello.magic = stepaf_control_hello_magic;
    link->hello.version = STEPAF_CONTROL_VERSION;
    link->hello.from = (uint32_t)control->place.rank;
    link->hello.size = (uint32_t)control->place.size;
    link->hello.port = control->port;
    if (control->guests.lives)
        link->hello.life = control->guests.lives[control->place.rank];
    if (!control->guests.is_one)
        memcpy(link->hello.session, control->session, sizeof link->hello.session);
    if (!stepaf_proof_draw(link->hello.nonce, sizeof link->hello.nonce)) {
        stepaf_control_link_close(link, "no random numbers are available", 0);
        return;
    }
    opening.hello = link->hello;
    prove_claim(link, stepaf_control_hello_magic, opening.proof);
    if (say_whole(link, &opening, sizeof opening))
        link->state = STEPAF_CONTROL_GREETING;
}

static void take_challenge(struct stepaf_control_link *link)
{
    struct stepaf_control_answer answer = {.magic = stepaf_control_answer_magic};
    struct stepaf_control_challenge challenge;

    if (link->have >= sizeof challenge.magic) {
        memcpy(&challenge.magic, link->in, sizeof challenge.magic);
        if (challenge.magic != stepaf_control_challenge_magic &&
            challenge.magic != stepaf_control_stale_magic &&
            challenge.magic != stepaf_control_size_magic &&
            challenge.magic != stepaf_control_refusal_magic)
            stepaf_control_link_close(link, "another program answers there", EPROTO);
    }
    if (!hear_message(link, &challenge, sizeof challenge))
        return;
    memcpy(link->nonce, challenge.nonce, sizeof link->nonce);
    if (challenge.magic == stepaf_control_refusal_magic ||
        !is_proven_by(link, challenge.magic, challenge.proof)) {
        stepaf_control_link_close(link, "the other end has a different secret", EACCES);
        return;
    }
    if (challenge.magic == stepaf_control_stale_magic) {
        stepaf_control_link_close(link, "another process has the rank's place", ESTALE);
        return;
    }
    if (challenge.magic == stepaf_control_size_magic) {
        memcpy(&link->control->guests.size_there, challenge.nonce, sizeof(uint32_t));
        stepaf_control_link_close(link, "the job has a different number of ranks", ERANGE);
        return;
    }
    prove_claim(link, stepaf_control_answer_magic, answer.proof);
    if (!say_whole(link, &answer, sizeof answer))
        return;
    make_keys(link);
    link->rank = (int)link->hello.to;
    link->state = STEPAF_CONTROL_ANSWERED;
}

/* Tell the other end, which may be a rank that was given another secret. */
static void refuse_secret(struct stepaf_control_link *link)
{
    struct stepaf_control_challenge refusal = {.magic = stepaf_control_refusal_magic};
    struct stepaf_control *control = link->control;

    stepaf_log_info("tcp bootstrap: rejected a connection that does not know this job's secret");
    if (link->hello.from < (uint32_t)control->place.size)
        control->refused_rank = (int)link->hello.from;
    if (say_whole(link, &refusal, sizeof refusal))
        stepaf_control_link_close(link, NULL, EACCES);
}

/* Return whether the caller wants this rank, in this job. */
static bool is_meant(const struct stepaf_control_link *link)
{
    const struct stepaf_control *control = link->control;

    if (stepaf_control_is_by_guest(link))
        return link->hello.to == (uint32_t)control->place.rank ||
               link->hello.to == stepaf_control_anybody;
    return link->hello.to == (uint32_t)control->place.rank &&
           memcmp(link->hello.session, control->session, sizeof control->session) == 0;
}

/* Return whether the caller wants the process that had this rank before: this process listens where
 * that one did, and the caller's messages are not for it. */
static bool is_stale(const struct stepaf_control_link *link)
{
    const struct stepaf_control *control = link->control;

    return !stepaf_control_is_by_guest(link) && control->guests.lives && link->hello.life_called &&
           link->hello.life_called != control->guests.lives[control->place.rank];
}

/* Answer a caller that has proven to know the secret, and end the connection: it has to be known
 * why. */
static void refuse_hello(struct stepaf_control_link *link, uint64_t magic, int error)
{
    struct stepaf_control_challenge refusal = {.magic = magic};

    memcpy(refusal.nonce, link->nonce, sizeof refusal.nonce);
    prove_claim(link, magic, refusal.proof);
    if (say_whole(link, &refusal, sizeof refusal))
        stepaf_control_link_close(link, NULL, error);
}

/* Return whether the caller wants a place in a job of another size than this one. */
static bool is_of_other_size(const struct stepaf_control_link *link)
{
    return stepaf_control_is_by_guest(link) &&
           link->hello.size != (uint32_t)link->control->place.size;
}

static void take_hello(struct stepaf_control_link *link)
{
    struct stepaf_control_challenge challenge = {.magic = stepaf_control_challenge_magic};
    struct stepaf_control_opening opening;

    if (!hear_message(link, &opening, sizeof opening))
        return;
    link->hello = opening.hello;
    if (opening.hello.magic != stepaf_control_hello_magic ||
        (stepaf_control_is_by_guest(link) && !link->control->guests.may_ask)) {
        stepaf_control_link_close(link, NULL, EPROTO);
    } else if (!is_proven_by(link, stepaf_control_hello_magic, opening.proof)) {
        refuse_secret(link);
    } else if (!is_meant(link) || !stepaf_proof_draw(link->nonce, sizeof link->nonce)) {
        stepaf_control_link_close(link, NULL, EPROTO);
    } else if (is_of_other_size(link)) {
        uint32_t size = (uint32_t)link->control->place.size;
        memcpy(link->nonce, &size, sizeof size);
        refuse_hello(link, stepaf_control_size_magic, ERANGE);
    } else if (is_stale(link)) {
        refuse_hello(link, stepaf_control_stale_magic, ESTALE);
    } else {
        memcpy(challenge.nonce, link->nonce, sizeof challenge.nonce);
        prove_claim(link, challenge.magic, challenge.proof);
        if (say_whole(link, &challenge, sizeof challenge))
            link->state = STEPAF_CONTROL_CHALLENGED;
    }
}

static void hear_answer(struct stepaf_control_link *link)
{
    struct stepaf_control_answer answer;

    if (!hear_message(link, &answer, sizeof answer))
        return;
    if (answer.magic != stepaf_control_answer_magic ||
        !is_proven_by(link, stepaf_control_answer_magic, answer.proof)) {
        stepaf_control_link_close(link, NULL, EPROTO);
        return;
    }
    make_keys(link);
    link->rank = (int)link->hello.from;
    link->state = STEPAF_CONTROL_UP;
    link->has_been_up = true;
}

void stepaf_control_greeted(struct stepaf_control_link *link)
{
    if (link->state == STEPAF_CONTROL_GREETING)
        take_challenge(link);
    if (link->state == STEPAF_CONTROL_STRANGER)
        take_hello(link);
    if (link->state == STEPAF_CONTROL_CHALLENGED)
        hear_answer(link);
}
