/* SPDX-License-Identifier: Apache-2.0 */
/* Watching the peers' processes: by process file descriptors in one epoll set, or, where the
 * kernel has none (before 5.3), by their state in /proc. Called by idle waiters only. And what a peer
 * that is not listened to any more may still write. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/time.h"
#include "transport/shm/shm.h"

#ifndef SYS_pidfd_open /* headers before Linux 5.3; the number is the same on all machines */
#define SYS_pidfd_open 434
#endif

/* Whether /proc says that the process is gone, or only waits for its parent. */
static bool has_ended(pid_t pid)
{
    char path[32], stat[256];
    ssize_t bytes;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = stepaf_fd_open(path, O_RDONLY);
    if (fd < 0)
        return errno == ENOENT;
    bytes = read(fd, stat, sizeof(stat) - 1);
    close(fd);
    if (bytes <= 0)
        return bytes < 0 && errno == ESRCH;
    stat[bytes] = '\0';
    /* pid (name) state: the name may hold anything, also parentheses */
    const char *state = strrchr(stat, ')');
    return state && state[1] == ' ' && (state[2] == 'Z' || state[2] == 'X');
}

bool stepaf_shm_watch(struct stepaf_shm *shm, struct stepaf_shm_link *link, char *reason)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};

    stepaf_fd_begin();
    link->pidfd = stepaf_fd_end((int)syscall(SYS_pidfd_open, link->pid, 0));
    if (link->pidfd < 0) {
        bool missing = errno == ENOSYS || errno == EPERM;
        snprintf(reason, STEPAF_REASON_MAX, "pidfd_open(%d): %s", (int)link->pid, strerror(errno));
        shm->n_unwatched += missing;
        return missing;
    }
    if (epoll_ctl(shm->epoll_fd, EPOLL_CTL_ADD, link->pidfd, &event)) {
        snprintf(reason, STEPAF_REASON_MAX, "cannot watch its process: %s", strerror(errno));
        close(link->pidfd);
        return false;
    }
    return true;
}

void stepaf_shm_unwatch(struct stepaf_shm *shm, struct stepaf_shm_link *link)
{
    if (link->pidfd >= 0)
        close(link->pidfd); /* the epoll set forgets it by that */
    else
        shm->n_unwatched--;
}

/* The peer is lost: what it said last still counts. */
static void lose(struct stepaf_shm *shm, struct stepaf_shm_link *link, const char *reason)
{
    struct stepaf_upcalls *up = shm->base.up;

    while (!link->base.dead && stepaf_shm_drain(link)) {
    }
    if (!link->base.dead)
        up->lost(up, &link->base, reason);
}

void stepaf_shm_check_peers(struct stepaf_transport *transport)
{
    struct stepaf_shm *shm = (struct stepaf_shm *)transport;
    struct epoll_event events[16];
    int n = epoll_wait(shm->epoll_fd, events, 16, 0);

    for (int i = 0; i < n; i++) {
        struct stepaf_shm_link *link = events[i].data.ptr;
        (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_DEL, link->pidfd, NULL);
        lose(shm, link, "its process has ended");
    }
    for (unsigned i = 0; i < shm->n_links; i++)
        if (shm->links[i]->shut || atomic_load(&shm->links[i]->tx_words->closed))
            lose(shm, shm->links[i], "it has given this rank up");
    for (unsigned i = 0; shm->n_unwatched && i < shm->n_links; i++) {
        struct stepaf_shm_link *link = shm->links[i];
        if (link->pidfd < 0 && !link->base.dead && has_ended(link->pid))
            lose(shm, link, "its process has ended");
    }
}

/* Close the pages to a peer; whether it is still writing there. */
static bool is_writing(struct stepaf_shm_link *link)
{
    struct pollfd pollfd = {.fd = link->pidfd, .events = POLLIN};

    atomic_store(&link->rx_words->closed, 1);
    if (!atomic_load(&link->rx_words->writing))
        return false;
    return link->pidfd < 0 ? !has_ended(link->pid) : poll(&pollfd, 1, 0) < 1;
}

void stepaf_shm_fence(struct stepaf_link *link)
{
    (void)is_writing((struct stepaf_shm_link *)link);
}

bool stepaf_shm_is_quiet(struct stepaf_transport *transport, bool begin, uint32_t *peer_p)
{
    const struct stepaf_shm *shm = (const struct stepaf_shm *)transport;
    bool quiet = true;

    (void)begin; /* a lost peer can begin nothing more */
    for (unsigned i = 0; i < shm->n_links; i++) {
        struct stepaf_shm_link *link = shm->links[i];
        if (!link->base.dead || !is_writing(link))
            continue;
        quiet = false;
        *peer_p = link->base.peer;
    }
    return quiet;
}

void stepaf_shm_close_pages(struct stepaf_shm *shm, int64_t timeout_us)
{
    const struct timespec pause = {.tv_nsec = 100000};
    int64_t deadline_ns = stepaf_monotonic_ns() + timeout_us * 1000;

    for (unsigned i = 0; i < shm->n_links; i++)
        (void)is_writing(shm->links[i]);
    for (unsigned i = 0; i < shm->n_links; i++) {
        bool late = false;
        while (is_writing(shm->links[i]) && !(late = stepaf_monotonic_ns() >= deadline_ns))
            nanosleep(&pause, NULL);
        if (late)
            stepaf_log_warn("shm: process %d may still write to memory of this one",
                            (int)shm->links[i]->pid);
    }
}
