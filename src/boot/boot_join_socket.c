/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1 /* struct ucred */

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/time.h"
#include "base/why.h"
#include "boot/boot_join.h"

const char *stepaf_join_who_meets(const struct stepaf_join *join)
{
    return join->is_named
               ? "ranks meet if user, network namespace and STEPAF_LOCAL_JOB are the same"
               : "ranks meet if user, network namespace, PID namespace and session are the same, "
                 "as STEPAF_LOCAL_JOB is not set";
}

stepaf_status_t stepaf_join_error(const struct stepaf_join *join, const char *what, int why)
{
    return stepaf_error_set(STEPAF_ERR_BOOT, STEPAF_PHASE_INIT, "local bootstrap: job %s: %s: %s",
                            join->job, what, stepaf_why(why));
}

socklen_t stepaf_join_address(const struct stepaf_join *join, struct sockaddr_un *address_p)
{
    *address_p = (struct sockaddr_un){.sun_family = AF_UNIX};
    int bytes = snprintf(address_p->sun_path + 1, sizeof address_p->sun_path - 1, "stepaf-%lu-%s",
                         (unsigned long)geteuid(), join->job);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
}

int stepaf_join_is_own_user(int fd)
{
    struct ucred other;
    socklen_t bytes = sizeof other;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 && other.uid == geteuid();
}

int stepaf_join_poll(struct pollfd *polled, int n, int64_t deadline_ns)
{
    for (;;) {
        int64_t left_ms = (deadline_ns - stepaf_monotonic_ns() + 999999) / 1000000;
        int most_ms = stepaf_interrupt_is_set() ? STEPAF_INTERRUPT_US / 1000 : 1000;
        if (stepaf_interrupted())
            left_ms = 0;
        int n_ready = poll(polled, (nfds_t)n,
                           left_ms <= 0        ? 0
                           : left_ms > most_ms ? most_ms
                                               : (int)left_ms);
        if (n_ready > 0)
            return 1;
        if (n_ready < 0 && errno != EINTR)
            return -1;
        if (left_ms <= 0)
            return 0;
    }
}

int stepaf_join_readable(int fd, int64_t deadline_ns)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};

    return stepaf_join_poll(&one, 1, deadline_ns) > 0;
}

int stepaf_join_say(int fd, const stepaf_error_t *why, const int *fds)
{
    struct stepaf_join_answer answer = {.magic = STEPAF_JOIN_MAGIC, .status = STEPAF_OK};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(STEPAF_LOCAL_FILES * sizeof(int))];
    } control = {0};
    struct iovec piece = {&answer, sizeof answer};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};

    if (why) {
        int length = snprintf(answer.reason, sizeof answer.reason, "%s", why->text);
        stepaf_mark_cut(answer.reason, sizeof answer.reason, length);
        answer.status = why->status;
        answer.peer = why->peer_world_rank + 1;
    }
    if (fds) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS,
                                        .cmsg_len = CMSG_LEN(STEPAF_LOCAL_FILES * sizeof(int))};
        memcpy(CMSG_DATA(&control.head), fds, STEPAF_LOCAL_FILES * sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

stepaf_status_t stepaf_join_hear(int fd, struct stepaf_join_answer *answer_p)
{
    ssize_t bytes = recv(fd, answer_p, sizeof *answer_p, MSG_DONTWAIT);

    /* The other end has closed without reading everything that this end has sent. What the other
     * end sent before can still be read. */
    if (bytes < 0 && errno == ECONNRESET)
        bytes = recv(fd, answer_p, sizeof *answer_p, MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return STEPAF_INPROGRESS;
    if (bytes != (ssize_t)sizeof *answer_p || answer_p->magic != STEPAF_JOIN_MAGIC)
        return STEPAF_ERR_PEER_LOST;
    answer_p->reason[STEPAF_JOIN_REASON_MAX - 1] = '\0';
    return stepaf_status_from((uint32_t)answer_p->status);
}
