/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 of a local job: gather the others, then give each what they share, or tell all why not. */
#define _GNU_SOURCE 1 /* accept4 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/time.h"
#include "boot/boot_join.h"

enum { HELLO_MS = 1000 }; /* for one that has connected to say who it is */

/* Rank 0's view. */
struct host {
    const struct stepaf_join *join;
    int listener;
    int *sockets; /* by rank; -1: not here yet */
    int n_here;   /* itself included */
};

static void send_answer(int fd, stepaf_status_t status, const char *reason, const int *fds)
{
    struct stepaf_join_answer answer = {.magic = STEPAF_JOIN_MAGIC, .status = status};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(STEPAF_LOCAL_FILES * sizeof(int))];
    } control = {0};
    struct iovec piece = {&answer, sizeof answer};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};

    snprintf(answer.reason, sizeof answer.reason, "%s", reason);
    if (status == STEPAF_OK) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS,
                                        .cmsg_len = CMSG_LEN(STEPAF_LOCAL_FILES * sizeof(int))};
        memcpy(CMSG_DATA(&control.head), fds, STEPAF_LOCAL_FILES * sizeof(int));
    }
    /* Whoever has gone meanwhile is missed in the exchange, by name. */
    (void)!sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* One has connected. Who is not of this user, or no rank, changes nothing. */
static stepaf_status_t welcome(struct host *host, int fd, int64_t deadline_ns)
{
    int64_t limit_ns = stepaf_monotonic_ns() + HELLO_MS * 1000000LL;
    const struct stepaf_join *join = host->join;
    struct stepaf_join_hello hello;

    if (!stepaf_join_is_own_user(fd) ||
        !stepaf_join_readable(fd, limit_ns < deadline_ns ? limit_ns : deadline_ns) ||
        recv(fd, &hello, sizeof hello, MSG_DONTWAIT) != sizeof hello ||
        hello.magic != STEPAF_JOIN_MAGIC) {
        close(fd);
        return STEPAF_OK;
    }
    stepaf_status_t status = STEPAF_OK;
    if (hello.layout != STEPAF_JOIN_LAYOUT)
        status = stepaf_error_set(STEPAF_ERR_MISMATCH, STEPAF_PHASE_INIT,
                                  "local bootstrap: job %s: rank %d has another version of "
                                  "libstepaf than rank 0",
                                  stepaf_join_name(join), hello.rank);
    else if (hello.size != join->size)
        status = stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                                  "local bootstrap: job %s: STEPAF_LOCAL_SIZE differs: %d at rank "
                                  "0, %d at rank %d",
                                  stepaf_join_name(join), join->size, hello.size, hello.rank);
    else if (hello.rank < 0 || hello.rank >= join->size || host->sockets[hello.rank] >= 0)
        status = stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                                  "local bootstrap: job %s: two processes are rank %d "
                                  "(STEPAF_LOCAL_RANK)",
                                  stepaf_join_name(join), hello.rank);
    if (status != STEPAF_OK) {
        send_answer(fd, status, stepaf_last_error()->text, NULL);
        close(fd);
        return status;
    }
    host->sockets[hello.rank] = fd;
    host->n_here++;
    return STEPAF_OK;
}

static stepaf_status_t accept_guests(struct host *host, int64_t deadline_ns)
{
    stepaf_status_t status = STEPAF_OK;

    while (status == STEPAF_OK && host->n_here < host->join->size) {
        if (!stepaf_join_readable(host->listener, deadline_ns)) {
            int missing = 1;
            while (host->sockets[missing] >= 0)
                missing++;
            return stepaf_error_set_peer(
                STEPAF_ERR_TIMEOUT, STEPAF_PHASE_INIT, (struct stepaf_who){-1, -1, missing},
                "local bootstrap: job %s: rank %d did not come in time; %d of %d are here",
                stepaf_join_name(host->join), missing, host->n_here, host->join->size);
        }
        stepaf_fd_begin();
        int fd = stepaf_fd_end(accept4(host->listener, NULL, NULL, SOCK_CLOEXEC));
        if (fd >= 0)
            status = welcome(host, fd, deadline_ns);
        else if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED)
            status = stepaf_join_error(host->join, "accept", errno);
    }
    return status;
}

/* Take the name; nobody else can have it then. */
static stepaf_status_t open_listener(struct host *host)
{
    struct sockaddr_un address;
    socklen_t bytes = stepaf_join_address(host->join, &address);

    stepaf_fd_begin();
    host->listener =
        stepaf_fd_end(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (host->listener < 0)
        return stepaf_join_error(host->join, "socket", errno);
    if (bind(host->listener, (struct sockaddr *)&address, bytes) == 0 &&
        listen(host->listener, host->join->size) == 0)
        return STEPAF_OK;
    if (errno != EADDRINUSE)
        return stepaf_join_error(host->join, "bind", errno);
    return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT,
                            "local bootstrap: job %s: another rank 0 is waiting there already: "
                            "give each job a STEPAF_LOCAL_JOB of its own",
                            stepaf_join_name(host->join));
}

stepaf_status_t stepaf_join_as_host(const struct stepaf_join *join, int64_t deadline_ns,
                                    stepaf_boot_local_t **local_p)
{
    struct host host = {.join = join, .listener = -1, .n_here = 1};
    stepaf_boot_local_t *local = NULL;
    stepaf_status_t status = stepaf_boot_local_create(join->size, &local);

    if (status == STEPAF_OK && !(host.sockets = malloc((size_t)join->size * sizeof(int))))
        status = stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT,
                                  "local bootstrap: no memory for %d ranks", join->size);
    for (int rank = 0; status == STEPAF_OK && rank < join->size; rank++)
        host.sockets[rank] = rank == 0 ? INT32_MAX : -1;
    if (status == STEPAF_OK && join->size > 1)
        status = open_listener(&host);
    if (status == STEPAF_OK)
        status = accept_guests(&host, deadline_ns);
    /* First of all, so that who comes for the next context finds the next listener. */
    if (host.listener >= 0)
        close(host.listener);
    for (int rank = 1; host.sockets && rank < join->size; rank++)
        if (host.sockets[rank] >= 0) {
            send_answer(host.sockets[rank], status, status ? stepaf_last_error()->text : "",
                        local->fds);
            close(host.sockets[rank]);
        }
    free(host.sockets);
    if (status == STEPAF_OK)
        *local_p = local;
    else
        stepaf_boot_local_destroy(local);
    return status;
}
