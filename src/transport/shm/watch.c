/* SPDX-License-Identifier: Apache-2.0 */
/* Watching the peers' processes: by process file descriptors in one epoll set, or, where the
 * kernel has none (before 5.3), by their state in /proc. Called by idle waiters only. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "transport/shm/shm.h"

/* Whether /proc says that the process is gone, or only waits for its parent. */
static bool has_ended(pid_t pid)
{
    char path[32], stat[256];
    ssize_t bytes;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
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

    link->pidfd = (int)syscall(SYS_pidfd_open, link->pid, 0);
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

/* The peer's process has ended: what it said last still counts. */
static void ended(struct stepaf_shm *shm, struct stepaf_shm_link *link)
{
    struct stepaf_host *host = shm->base.host;

    while (!link->base.dead && stepaf_shm_drain(link)) {
    }
    if (!link->base.dead)
        host->lost(host, &link->base, "its process has ended");
}

void stepaf_shm_idle(struct stepaf_transport *transport)
{
    struct stepaf_shm *shm = (struct stepaf_shm *)transport;
    struct epoll_event events[16];
    int n = epoll_wait(shm->epoll_fd, events, 16, 0);

    for (int i = 0; i < n; i++) {
        struct stepaf_shm_link *link = events[i].data.ptr;
        (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_DEL, link->pidfd, NULL);
        ended(shm, link);
    }
    for (unsigned i = 0; shm->n_unwatched && i < shm->n_links; i++) {
        struct stepaf_shm_link *link = shm->links[i];
        if (link->pidfd < 0 && !link->base.dead && has_ended(link->pid))
            ended(shm, link);
    }
}
