/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 of a local job: gather the others, give each what they share, then tell all to go on, or
 * why not. */
#define _GNU_SOURCE 1 /* struct ucred */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/interrupt.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/boot_join_strangers.h"

enum {
    LINGER_MS = 2000, /* to tell late comers that there will be no job */
    RESEND_MS = 5,    /* between tries to send files that cannot be sent */
    N_LISTENER = 0,   /* among what is polled */
    HINT_MAX = 224
};

/* What has become of a rank. */
struct seat {
    bool has_come; /* or somebody that says it is this one, and could not be let in */
    bool is_ready; /* it has taken the files */
    int unsent;    /* it is here, and cannot be sent the files: why, an errno; 0: it has been */
};

/* Rank 0's view. */
struct host {
    const struct stepaf_join *join;
    stepaf_boot_local_t *local;
    struct pollfd *polled; /* by rank (0: the listener; -1: not here), then strangers */
    struct seat *seats;    /* by rank */
    struct stepaf_join_strangers strangers;
    int n_ready;  /* itself included */
    int n_come;   /* itself not */
    int n_unsent; /* ranks */
};

/* What is wrong with one of this user's that says it is a rank. */
static stepaf_status_t judge_hello(const struct host *host, const struct stepaf_join_hello *hello)
{
    const struct stepaf_join *join = host->join;
    bool is_rank = hello->rank > 0 && hello->rank < join->size;
    const struct stepaf_who who = {-1, -1, is_rank ? hello->rank : -1};

    if (hello->layout != STEPAF_JOIN_LAYOUT)
        return stepaf_error_set_peer(STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT, who,
                                     "local bootstrap: job %s: rank %d has another version of "
                                     "libstepaf than rank 0",
                                     join->job, hello->rank);
    if (hello->size != join->size)
        return stepaf_error_set_peer(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT, who,
                                     "local bootstrap: job %s: STEPAF_LOCAL_SIZE differs: %d at "
                                     "rank 0, %d at rank %d",
                                     join->job, join->size, hello->size, hello->rank);
    if (!is_rank || host->polled[hello->rank].fd >= 0)
        return stepaf_error_set_peer(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT, who,
                                     "local bootstrap: job %s: two processes are rank %d "
                                     "(STEPAF_LOCAL_RANK)",
                                     join->job, hello->rank);
    return STEPAF_OK;
}

static void note_arrival(struct host *host, int rank)
{
    if (rank <= 0 || rank >= host->join->size || host->seats[rank].has_come)
        return;
    host->seats[rank].has_come = true;
    host->n_come++;
}

/* There may be no room for more descriptors on their way, of all processes of this user: it is tried
 * again until others have taken theirs. */
static void send_files(struct host *host, int rank)
{
    int *unsent = &host->seats[rank].unsent;
    int why = stepaf_join_say(host->polled[rank].fd, NULL, host->local->fds);

    if (why == EPIPE || why == ECONNRESET)
        return; /* its end is heard */
    host->n_unsent += !!why - !!*unsent;
    *unsent = why;
}

/* One has said who it is. */
static stepaf_status_t welcome(struct host *host, int fd, const struct stepaf_join_hello *hello)
{
    stepaf_status_t status = judge_hello(host, hello);

    note_arrival(host, hello->rank);
    if (status != STEPAF_OK) {
        stepaf_join_say(fd, stepaf_last_error(), NULL);
        stepaf_fork_close(fd);
        return status;
    }
    host->polled[hello->rank].fd = fd;
    send_files(host, hello->rank);
    return STEPAF_OK;
}

/* Wait for any news, or until the deadline, or the end of a stranger's time. */
static stepaf_status_t await_news(struct host *host, int64_t deadline_ns)
{
    int64_t limit_ns = stepaf_join_patience(&host->strangers, deadline_ns);
    int n = host->join->size + host->strangers.n;

    /* There cannot be more than a process may have descriptors; then strangers have to go. Who
     * reads now, by what was polled before, does not wait. */
    if (stepaf_join_poll(host->polled, n, limit_ns) >= 0 ||
        stepaf_join_dismiss_oldest(&host->strangers))
        return STEPAF_OK;
    return stepaf_join_error(host->join, "cannot poll all ranks (ulimit -n)", errno);
}

/* Who connects, and who says who it is. Who is not of this user, or no rank, changes nothing. */
static stepaf_status_t answer_door(struct host *host)
{
    stepaf_status_t status = STEPAF_OK;
    struct stepaf_join_hello hello;
    int error = 0, fd;

    if (host->polled[N_LISTENER].revents)
        error = stepaf_join_let_in(&host->strangers, host->polled[N_LISTENER].fd);
    if (error)
        return stepaf_join_error(host->join, "accept", error);
    while (status == STEPAF_OK && (fd = stepaf_join_introduced(&host->strangers, &hello)) >= 0)
        status = welcome(host, fd, &hello);
    return status;
}

/* Words for the end of a sentence about a rank. */
static const char *hint_unsent(const struct host *host, int rank, char text_p[HINT_MAX])
{
    int why = host->seats[rank].unsent;

    *text_p = '\0';
    if (why)
        snprintf(text_p, HINT_MAX, "; cannot send the shared files to rank %d: %s", rank,
                 stepaf_why(why));
    return text_p;
}

static stepaf_status_t miss_one(const struct host *host)
{
    char hint[HINT_MAX];
    int missing = 1;

    while (missing < host->join->size - 1 && host->seats[missing].is_ready)
        missing++;
    return stepaf_error_set_peer(
        STEPAF_ERR_TIMEOUT, STEPAF_PHASE_INIT, (struct stepaf_who){-1, -1, missing},
        "local bootstrap: job %s: rank %d did not arrive in time; %d of %d are here; %s%s",
        host->join->job, missing, host->n_ready, host->join->size,
        stepaf_join_who_meets(host->join), hint_unsent(host, missing, hint));
}

/* One that was let in has said something, or has ended. */
static stepaf_status_t hear_joiner(struct host *host, int rank)
{
    const struct stepaf_who who = {-1, -1, rank};
    struct stepaf_join_answer answer = {0};
    char hint[HINT_MAX];
    stepaf_status_t status = stepaf_join_hear(host->polled[rank].fd, &answer);

    if (status == STEPAF_INPROGRESS)
        return STEPAF_OK;
    if (status == STEPAF_OK) {
        host->n_ready += !host->seats[rank].is_ready;
        host->seats[rank].is_ready = true;
        return STEPAF_OK;
    }
    if (status == STEPAF_ERR_TIMEOUT)
        return miss_one(host); /* it would have waited no longer */
    if (status == STEPAF_ERR_PEER_LOST)
        return stepaf_error_set_peer(
            status, STEPAF_PHASE_INIT, who,
            "local bootstrap: job %s: rank %d has ended before all ranks had arrived%s",
            host->join->job, rank, hint_unsent(host, rank, hint));
    return stepaf_error_set_peer(status < 0 ? status : STEPAF_ERR_PROTOCOL, STEPAF_PHASE_INIT, who,
                                 "local bootstrap: job %s: rank %d cannot join: %.200s",
                                 host->join->job, rank, answer.reason);
}

/* When files are to be sent that could not be, within the deadline. */
static int64_t next_try(const struct host *host, int64_t deadline_ns)
{
    int64_t next_ns = stepaf_monotonic_ns() + RESEND_MS * 1000000LL;

    return host->n_unsent && next_ns < deadline_ns ? next_ns : deadline_ns;
}

static stepaf_status_t gather_guests(struct host *host, int64_t deadline_ns)
{
    int size = host->join->size;
    stepaf_status_t status = STEPAF_OK;

    while (status == STEPAF_OK && host->n_ready < size) {
        status = await_news(host, next_try(host, deadline_ns));
        for (int rank = 1; rank < size && status == STEPAF_OK; rank++) {
            if (host->polled[rank].fd >= 0 && host->polled[rank].revents)
                status = hear_joiner(host, rank);
            if (status == STEPAF_OK && host->seats[rank].unsent)
                send_files(host, rank);
        }
        if (status == STEPAF_OK)
            status = answer_door(host);
        if (status == STEPAF_OK && host->n_ready < size &&
            (stepaf_monotonic_ns() >= deadline_ns || stepaf_interrupted()))
            return miss_one(host);
    }
    return status;
}

/* There will be no job: those who are only on their way are to hear it as well. Who is a rank that
 * has come is not one of them, however often it is started. */
static void turn_away(struct host *host, const stepaf_error_t *why, int64_t deadline_ns)
{
    int64_t limit_ns = stepaf_monotonic_ns() + LINGER_MS * 1000000LL;
    struct stepaf_join_hello hello;
    int fd;

    limit_ns = limit_ns < deadline_ns ? limit_ns : deadline_ns;
    while (host->n_come < host->join->size - 1 && stepaf_monotonic_ns() < limit_ns) {
        if (await_news(host, limit_ns) != STEPAF_OK ||
            (host->polled[N_LISTENER].revents &&
             stepaf_join_let_in(&host->strangers, host->polled[N_LISTENER].fd)))
            return;
        /* It has been read: what is closed before that takes the answer with it. */
        while ((fd = stepaf_join_introduced(&host->strangers, &hello)) >= 0) {
            stepaf_join_say(fd, why, NULL);
            stepaf_fork_close(fd);
            note_arrival(host, hello.rank);
        }
    }
}

/* The user whose process has the name; -1: that is not to be found out. Where it is a rank 0, this is
 * one stranger more who leaves. */
static long user_at(const struct sockaddr_un *address, socklen_t bytes)
{
    struct ucred other;
    socklen_t other_bytes = sizeof other;
    long user = -1;

    stepaf_fork_begin();
    int fd = stepaf_fork_end(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)address, bytes) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &other_bytes) == 0)
        user = (long)other.uid;
    stepaf_fork_close(fd);
    return user;
}

static stepaf_status_t name_is_taken(const struct host *host, long user)
{
    const char *job = host->join->job;

    if (user >= 0 && user != (long)geteuid())
        return stepaf_error_set(
            STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
            "local bootstrap: job %s: a process of user %ld has taken the place of rank 0: set "
            "STEPAF_LOCAL_JOB to a name that other users do not know",
            job, user);
    return stepaf_error_set(
        STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
        "local bootstrap: job %s: another %s already: set a different STEPAF_LOCAL_JOB for each "
        "job",
        job, user >= 0 ? "rank 0 is waiting" : "rank 0, or another user, has the name");
}

/* Take the name; nobody else can have it then. */
static stepaf_status_t open_listener(struct host *host)
{
    struct sockaddr_un address;
    socklen_t bytes = stepaf_join_address(host->join, &address);

    stepaf_fork_begin();
    int fd = stepaf_fork_end(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    host->polled[N_LISTENER].fd = fd;
    if (fd < 0)
        return stepaf_join_error(host->join, "socket", errno);
    if (bind(fd, (struct sockaddr *)&address, bytes) == 0 && listen(fd, host->join->size) == 0)
        return STEPAF_OK;
    if (errno != EADDRINUSE)
        return stepaf_join_error(host->join, "bind", errno);
    return name_is_taken(host, user_at(&address, bytes));
}

static stepaf_status_t open_host(struct host *host)
{
    size_t size = (size_t)host->join->size;

    host->polled = malloc((size + STEPAF_JOIN_STRANGERS_MAX) * sizeof *host->polled);
    host->seats = calloc(size, sizeof *host->seats);
    for (size_t rank = 0; host->polled && rank < size; rank++)
        host->polled[rank] = (struct pollfd){.fd = -1, .events = POLLIN};
    if (!host->polled || !host->seats)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT,
                                "local bootstrap: no memory for %d ranks", host->join->size);
    host->strangers.polled = host->polled + size;
    stepaf_status_t status = size > 1 ? open_listener(host) : STEPAF_OK;
    if (status == STEPAF_OK)
        status = stepaf_boot_local_create(host->join->size, &host->local);
    if (status == STEPAF_OK)
        stepaf_boot_local_hold(host->local, 0);
    return status;
}

/* Why there will be no job; NULL: there will. */
static void tell_guests(struct host *host, const stepaf_error_t *why)
{
    for (int rank = 1; rank < host->join->size; rank++)
        if (host->polled[rank].fd >= 0) {
            stepaf_join_say(host->polled[rank].fd, why, NULL);
            stepaf_fork_close(host->polled[rank].fd);
            host->polled[rank].fd = -1;
        }
}

static void close_door(struct host *host)
{
    if (host->polled[N_LISTENER].fd >= 0)
        stepaf_fork_close(host->polled[N_LISTENER].fd);
    stepaf_join_dismiss_all(&host->strangers);
}

static void close_meeting(struct host *host, int64_t deadline_ns)
{
    const stepaf_error_t why = *stepaf_last_error();

    tell_guests(host, &why);
    if (host->polled[N_LISTENER].fd >= 0)
        turn_away(host, &why, deadline_ns);
    close_door(host);
    stepaf_error_raise(&why);
}

stepaf_status_t stepaf_join_as_host(const struct stepaf_join *join, int64_t deadline_ns,
                                    stepaf_boot_local_t **local_p)
{
    struct host host = {.join = join, .n_ready = 1};
    stepaf_status_t status = open_host(&host);

    if (status == STEPAF_OK)
        status = gather_guests(&host, deadline_ns);
    if (status == STEPAF_OK) {
        /* First of all, so that who comes for the next context finds the next listener. */
        close_door(&host);
        tell_guests(&host, NULL);
        *local_p = host.local;
    } else {
        if (host.polled)
            close_meeting(&host, deadline_ns);
        stepaf_boot_local_destroy(host.local);
    }
    free(host.polled);
    free(host.seats);
    return status;
}
