/* SPDX-License-Identifier: Apache-2.0 */
#include "base/outlet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    /* A pseudo-terminal that is ready may have room for no more (Linux 6.18). A newline that it turns
     * into two bytes may still wait there. */
    TTY_BYTES = 1
};

/* Return whether to open @a rdev again opens the same terminal: /dev/tty and a pseudo-terminal's
 * master are others for each that opens them. */
static bool is_one_terminal(dev_t rdev)
{
    return major(rdev) != 5 || (minor(rdev) != 0 && minor(rdev) != 2);
}

/* Not where it is another's, which a user who has changed cannot open. */
static int reopen_outlet(int fd)
{
    char path[sizeof "/proc/thread-self/fd/" + 3 * sizeof fd];

    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
    return stepaf_fd_open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY);
}

void stepaf_outlet_open(struct stepaf_outlet *outlet_p, int fd)
{
    int error = errno;
    struct stat facts;
    bool is_pipe = false, is_tty = false;

    if (fstat(fd, &facts) == 0) {
        is_pipe = S_ISFIFO(facts.st_mode);
        is_tty = S_ISCHR(facts.st_mode) && isatty(fd);
    }
    *outlet_p = (struct stepaf_outlet){.fd = fd, .own = -1, .most = STEPAF_OUTLET_BYTES};
    if (is_pipe || (is_tty && is_one_terminal(facts.st_rdev)))
        outlet_p->own = reopen_outlet(fd);
    if (is_tty && outlet_p->own < 0)
        outlet_p->most = TTY_BYTES;
    outlet_p->is_tty = is_tty && outlet_p->own >= 0;
    errno = error;
}

void stepaf_outlet_close(struct stepaf_outlet *outlet)
{
    int error = errno;

    if (outlet->own >= 0)
        close(outlet->own);
    outlet->own = -1;
    errno = error;
}

bool stepaf_outlet_lock(const struct stepaf_outlet *outlet)
{
    return !outlet->is_tty || flock(outlet->own, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

ssize_t stepaf_outlet_put(const struct stepaf_outlet *outlet, const void *data, size_t bytes)
{
    struct pollfd ready = {.fd = outlet->fd, .events = POLLOUT};
    size_t piece = bytes < outlet->most ? bytes : outlet->most;

    if (outlet->own >= 0)
        return write(outlet->own, data, piece);
    ssize_t sent = send(outlet->fd, data, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0 || errno != ENOTSOCK)
        return sent;
    if (poll(&ready, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(outlet->fd, data, piece);
}
