/* SPDX-License-Identifier: Apache-2.0 */
/* Queries to the name service, which may take longer than any caller here waits: then a thread is
 * left with the query, which takes the answer and ends. */
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"
#include "base/interrupt.h"
#include "base/thread.h"
#include "base/time.h"
#include "boot/control/socket.h"

/* Shared by the thread and the caller; the last of them to leave it frees it. */
struct question {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool is_answered, is_left;
    int error; /* of getaddrinfo() */
    struct addrinfo *found;
    char host[STEPAF_PLACE_HOST_MAX + 1];
};

static int ask_for_addresses(const char *host, int flags, struct addrinfo **found_p)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};

    return getaddrinfo(host, NULL, &hints, found_p);
}

static int take_addresses(struct addrinfo *found,
                          struct stepaf_control_address addresses_p[STEPAF_CONTROL_ADDRESSES])
{
    int n = 0;

    for (const struct addrinfo *at = found; at && n < STEPAF_CONTROL_ADDRESSES; at = at->ai_next)
        n += stepaf_control_address_from(at->ai_addr, &addresses_p[n]);
    if (found)
        freeaddrinfo(found);
    return n;
}

static struct question *new_question(const char *host)
{
    struct question *question = calloc(1, sizeof *question);
    pthread_condattr_t attributes;

    if (!question)
        return NULL;
    strncpy(question->host, host, sizeof question->host - 1);
    pthread_mutex_init(&question->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&question->answered, &attributes);
    pthread_condattr_destroy(&attributes);
    return question;
}

static void free_question(struct question *question)
{
    pthread_cond_destroy(&question->answered);
    pthread_mutex_destroy(&question->lock);
    free(question);
}

static void *answer_question(void *arg)
{
    struct question *question = arg;
    struct addrinfo *found = NULL;
    int error = ask_for_addresses(question->host, 0, &found);

    pthread_mutex_lock(&question->lock);
    bool is_left = question->is_left;
    question->error = error;
    question->found = found;
    question->is_answered = true;
    pthread_cond_signal(&question->answered);
    pthread_mutex_unlock(&question->lock);
    if (!is_left)
        return NULL;
    if (found)
        freeaddrinfo(found);
    free_question(question);
    return NULL;
}

/* Wait for the answer. Returns false if there is none by @a limit_ns; the question then belongs to
 * the thread. */
static bool await_answer(struct question *question, int64_t limit_ns)
{
    pthread_mutex_lock(&question->lock);
    while (!question->is_answered && stepaf_monotonic_ns() < limit_ns && !stepaf_interrupted()) {
        int64_t look_ns = stepaf_monotonic_ns() + STEPAF_INTERRUPT_US * 1000LL;
        int64_t until_ns = look_ns < limit_ns ? look_ns : limit_ns;
        const struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
        (void)pthread_cond_timedwait(&question->answered, &question->lock, &until);
    }
    bool is_answered = question->is_answered;
    question->is_left = !is_answered;
    pthread_mutex_unlock(&question->lock);
    return is_answered;
}

static int resolve_in_time(const char *host,
                           struct stepaf_control_address addresses_p[STEPAF_CONTROL_ADDRESSES],
                           int64_t limit_ns, int *error_p)
{
    struct addrinfo *found = NULL;
    struct question *question;
    pthread_t thread;

    *error_p = ask_for_addresses(host, AI_NUMERICHOST, &found); /* no query is needed */
    if (!*error_p)
        return take_addresses(found, addresses_p);
    *error_p = EAI_MEMORY;
    question = new_question(host);
    if (!question)
        return 0;
    if (stepaf_thread_start(&thread, answer_question, question) != 0) {
        free_question(question);
        return 0;
    }
    if (!await_answer(question, limit_ns)) {
        pthread_detach(thread);
        *error_p = STEPAF_CONTROL_NO_ANSWER;
        return 0;
    }
    pthread_join(thread, NULL);
    *error_p = question->error;
    found = question->found;
    free_question(question);
    return take_addresses(found, addresses_p);
}

int stepaf_control_resolve(const char *host,
                           struct stepaf_control_address addresses_p[STEPAF_CONTROL_ADDRESSES],
                           int64_t limit_ns, int *error_p)
{
    stepaf_fd_begin();
    int n = resolve_in_time(host, addresses_p, limit_ns < 0 ? 0 : limit_ns, error_p);
    (void)stepaf_fd_end(-1);
    return n;
}
