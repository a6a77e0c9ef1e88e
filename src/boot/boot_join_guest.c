/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a local job other than rank 0: connect to rank 0, take the files that it gives out,
 * and wait for the other ranks. */
#define _GNU_SOURCE 1 /* MSG_CMSG_CLOEXEC */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/interrupt.h"
#include "base/time.h"
#include "boot/boot_join.h"

enum { RETRY_NS = 2000000 };

/* Connect and say who this rank is. Returns the socket, or -1 with errno. */
static int call_host(const struct stepaf_join *join)
{
    struct stepaf_join_hello hello = {.magic = STEPAF_JOIN_MAGIC,
                                      .layout = STEPAF_JOIN_LAYOUT,
                                      .rank = join->rank,
                                      .size = join->size};
    struct sockaddr_un address;
    socklen_t bytes = stepaf_join_address(join, &address);
    stepaf_fork_begin();
    int fd = stepaf_fork_end(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, bytes) == 0) {
        if (!stepaf_join_is_own_user(fd))
            errno = EPERM;
        else if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello)
            return fd;
    }
    int why = errno;
    stepaf_fork_close(fd);
    errno = why;
    return -1;
}

/* Read the answer. Returns 0 if there is none: the listener has gone, and may come again.
 * *is_cut_p: the kernel has left out files, because this process has no free file descriptor for
 * them. */
static int receive_answer(int fd, struct stepaf_join_answer *answer_p, int *fds_p, int *is_cut_p)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(STEPAF_LOCAL_FILES * sizeof(int))];
    } control;
    struct iovec piece = {answer_p, sizeof *answer_p};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    stepaf_fd_begin();
    ssize_t bytes = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    (void)stepaf_fd_end(-1);
    *is_cut_p = bytes >= 0 && message.msg_flags & MSG_CTRUNC;
    struct cmsghdr *head = bytes >= 0 ? CMSG_FIRSTHDR(&message) : NULL;

    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds_p, CMSG_DATA(head),
               (n < STEPAF_LOCAL_FILES ? n : STEPAF_LOCAL_FILES) * sizeof(int));
    }
    return bytes == (ssize_t)sizeof *answer_p && answer_p->magic == STEPAF_JOIN_MAGIC;
}

/* Set the error with rank 0's reason why there will be no job. */
static stepaf_status_t repeat_reason(const struct stepaf_join *join, stepaf_status_t status,
                                     const struct stepaf_join_answer *answer)
{
    int peer = answer->peer > 0 && answer->peer <= join->size ? answer->peer - 1 : -1;

    return stepaf_error_set_peer(status, STEPAF_PHASE_INIT, (struct stepaf_who){-1, -1, peer}, "%s",
                                 answer->reason);
}

/* Take the files of rank 0's first answer. */
static stepaf_status_t adopt_answer(const struct stepaf_join *join,
                                    struct stepaf_join_answer *answer, int *fds, int is_cut,
                                    stepaf_boot_local_t **local_p)
{
    stepaf_status_t status = stepaf_status_from((uint32_t)answer->status);

    answer->reason[STEPAF_JOIN_REASON_MAX - 1] = '\0';
    if (status < 0)
        return repeat_reason(join, status, answer);
    if (is_cut)
        return stepaf_join_error(join, "cannot receive the shared files of rank 0", EMFILE);
    return stepaf_boot_local_adopt(join->size, fds, local_p);
}

/* Wait for the other ranks, once rank 0 has let this rank in. */
static stepaf_status_t await_others(const struct stepaf_join *join, int fd, int64_t deadline_ns)
{
    const struct stepaf_who host = {-1, -1, 0};
    struct stepaf_join_answer answer = {0};
    stepaf_status_t status = STEPAF_INPROGRESS;

    while (status == STEPAF_INPROGRESS && stepaf_join_readable(fd, deadline_ns))
        status = stepaf_join_hear(fd, &answer);
    if (status == STEPAF_INPROGRESS) {
        status = stepaf_error_set_peer(
            STEPAF_ERR_TIMEOUT, STEPAF_PHASE_INIT, host,
            "local bootstrap: job %s: rank 0 did not gather all ranks in time", join->job);
        stepaf_join_say(fd, stepaf_last_error(), NULL);
        return status;
    }
    if (status == STEPAF_ERR_PEER_LOST && answer.status != status)
        return stepaf_error_set_peer(
            status, STEPAF_PHASE_INIT, host,
            "local bootstrap: job %s: rank 0 has ended before all ranks had arrived", join->job);
    return status ? repeat_reason(join, status, &answer) : STEPAF_OK;
}

/* Act on the first answer of rank 0. */
static stepaf_status_t follow_answer(const struct stepaf_join *join, int fd,
                                     struct stepaf_join_answer *answer, int *fds, int is_cut,
                                     int64_t deadline_ns, stepaf_boot_local_t **local_p)
{
    stepaf_boot_local_t *local = NULL;
    stepaf_status_t status = adopt_answer(join, answer, fds, is_cut, &local);

    if (status != STEPAF_OK) {
        for (int i = 0; i < STEPAF_LOCAL_FILES; i++)
            if (fds[i] >= 0)
                close(fds[i]);
        stepaf_join_say(fd, stepaf_last_error(), NULL);
        return status;
    }
    stepaf_boot_local_hold(local, join->rank);
    stepaf_join_say(fd, NULL, NULL);
    status = await_others(join, fd, deadline_ns);
    if (status == STEPAF_OK)
        *local_p = local;
    else
        stepaf_boot_local_destroy(local);
    return status;
}

stepaf_status_t stepaf_join_as_guest(const struct stepaf_join *join, int64_t deadline_ns,
                                     stepaf_boot_local_t **local_p)
{
    for (;;) {
        int fds[STEPAF_LOCAL_FILES] = {-1, -1};
        struct stepaf_join_answer answer;
        int fd = call_host(join);
        if (fd < 0 && errno != ECONNREFUSED && errno != EAGAIN && errno != EPIPE &&
            errno != ECONNRESET && errno != EINTR)
            return stepaf_join_error(
                join, errno == EPERM ? "rank 0 belongs to another user" : "connect", errno);
        int is_cut = 0, is_answered = fd >= 0 && stepaf_join_readable(fd, deadline_ns) &&
                                      receive_answer(fd, &answer, fds, &is_cut);
        stepaf_status_t status = STEPAF_ERR_TIMEOUT;
        if (is_answered)
            status = follow_answer(join, fd, &answer, fds, is_cut, deadline_ns, local_p);
        for (int i = 0; i < STEPAF_LOCAL_FILES && !is_answered; i++)
            if (fds[i] >= 0)
                close(fds[i]);
        if (fd >= 0)
            stepaf_fork_close(fd);
        if (is_answered)
            return status;
        if (stepaf_monotonic_ns() >= deadline_ns || stepaf_interrupted())
            return stepaf_error_set_peer(
                STEPAF_ERR_TIMEOUT, STEPAF_PHASE_INIT, (struct stepaf_who){-1, -1, 0},
                "local bootstrap: job %s: rank 0 did not %s in time; %s", join->job,
                fd >= 0 ? "gather all ranks" : "arrive", stepaf_join_who_meets(join));
        nanosleep(&(struct timespec){0, RETRY_NS}, NULL);
    }
}
