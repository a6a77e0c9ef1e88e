/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1 /* accept4 */

#include "boot/boot_join_strangers.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fork.h"
#include "base/time.h"

enum { HELLO_MS = 1000 /* for a process that has connected to say who it is */ };

/* Remove a stranger; return its file descriptor. */
static int release_stranger(struct stepaf_join_strangers *strangers, int at)
{
    int fd = strangers->polled[at].fd;
    size_t behind = (size_t)(--strangers->n - at);

    memmove(&strangers->polled[at], &strangers->polled[at + 1], behind * sizeof *strangers->polled);
    memmove(&strangers->until_ns[at], &strangers->until_ns[at + 1],
            behind * sizeof *strangers->until_ns);
    return fd;
}

bool stepaf_join_dismiss_oldest(struct stepaf_join_strangers *strangers)
{
    if (!strangers->n)
        return false;
    stepaf_fork_close(release_stranger(strangers, 0));
    return true;
}

void stepaf_join_dismiss_all(struct stepaf_join_strangers *strangers)
{
    while (stepaf_join_dismiss_oldest(strangers))
        ;
}

int64_t stepaf_join_patience(const struct stepaf_join_strangers *strangers, int64_t deadline_ns)
{
    return strangers->n && strangers->until_ns[0] < deadline_ns ? strangers->until_ns[0]
                                                                : deadline_ns;
}

int stepaf_join_let_in(struct stepaf_join_strangers *strangers, int listener)
{
    int fd;

    do {
        stepaf_fork_begin();
        fd = stepaf_fork_end(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    } while (fd < 0 && (errno == EMFILE || errno == ENFILE) &&
             stepaf_join_dismiss_oldest(strangers));
    if (fd < 0)
        return errno == EINTR || errno == EAGAIN || errno == ECONNABORTED ? 0 : errno;
    if (!stepaf_join_is_own_user(fd)) {
        stepaf_fork_close(fd);
        return 0;
    }
    if (strangers->n == STEPAF_JOIN_STRANGERS_MAX)
        stepaf_join_dismiss_oldest(strangers);
    /* Mark the stranger as readable, so that it is read before others can take its place. */
    strangers->polled[strangers->n] =
        (struct pollfd){.fd = fd, .events = POLLIN, .revents = POLLIN};
    strangers->until_ns[strangers->n++] = stepaf_monotonic_ns() + HELLO_MS * 1000000LL;
    return 0;
}

int stepaf_join_introduced(struct stepaf_join_strangers *strangers,
                           struct stepaf_join_hello *hello_p)
{
    for (int at = 0; at < strangers->n;) {
        struct pollfd *one = &strangers->polled[at];
        if (!one->revents) {
            at++;
            continue;
        }
        one->revents = 0;
        ssize_t bytes = recv(one->fd, hello_p, sizeof *hello_p, MSG_DONTWAIT);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
            at++;
            continue;
        }
        int fd = release_stranger(strangers, at);
        if (bytes == (ssize_t)sizeof *hello_p && hello_p->magic == STEPAF_JOIN_MAGIC)
            return fd;
        stepaf_fork_close(fd);
    }
    /* Only after all have been read: this process itself may have been late. */
    while (strangers->n && stepaf_monotonic_ns() >= strangers->until_ns[0])
        stepaf_join_dismiss_oldest(strangers);
    return -1;
}
