/* SPDX-License-Identifier: Apache-2.0 */
/* Watch the peers' processes: by process file descriptors in one epoll set, or, if the kernel has
 * none (before 5.3), by their state in /proc. Also check whether they still run the program that
 * announced the link, and what a peer that is no longer listened to may still write. Called only by
 * idle waiters. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/time.h"
#include "base/why.h"
#include "base/writable.h"
#include "transport/shm/shm.h"

#ifndef SYS_pidfd_open /* headers before Linux 5.3; the number is the same on all machines */
#define SYS_pidfd_open 434
#endif

enum {
    STAT_THREADS = 17,    /* of /proc/PID/stat: words from the state to the number of threads */
    SAME_PROGRAM_MS = 100 /* interval of the check */
};

/* State of a process in /proc. */
enum process_state {
    PROCESS_LIVES,
    PROCESS_HEADLESS, /* its first thread has ended, others continue */
    PROCESS_ENDED     /* it is gone, or only waits for its parent */
};

static enum process_state process_state(pid_t pid)
{
    char path[32], stat[512];
    ssize_t bytes;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = stepaf_fd_open(path, O_RDONLY);
    if (fd < 0)
        return errno == ENOENT ? PROCESS_ENDED : PROCESS_LIVES;
    bytes = read(fd, stat, sizeof(stat) - 1);
    close(fd);
    if (bytes <= 0)
        return bytes < 0 && errno == ESRCH ? PROCESS_ENDED : PROCESS_LIVES;
    stat[bytes] = '\0';
    /* pid (name) state: the name may contain anything, including parentheses */
    const char *state = strrchr(stat, ')');
    if (!state || state[1] != ' ' || (state[2] != 'Z' && state[2] != 'X'))
        return PROCESS_LIVES;
    const char *threads = state + 2;
    for (int i = 0; i < STAT_THREADS && threads; i++)
        threads = strchr(threads + 1, ' ');
    return threads && atoi(threads + 1) > 1 ? PROCESS_HEADLESS : PROCESS_ENDED;
}

static bool process_has_ended(pid_t pid, int pidfd)
{
    struct pollfd pollfd = {.fd = pidfd, .events = POLLIN};

    return pidfd < 0 ? process_state(pid) == PROCESS_ENDED : poll(&pollfd, 1, 0) > 0;
}

bool stepaf_shm_has_ended(const struct stepaf_shm_link *link)
{
    return process_has_ended(link->pid, link->pidfd);
}

bool stepaf_shm_is_over(struct stepaf_link *link)
{
    return stepaf_shm_has_ended((const struct stepaf_shm_link *)link);
}

/* Stat the peer's file descriptor of its control segment, which is closed when the peer starts
 * another program. */
static bool stat_control(const struct stepaf_shm_link *link, struct stat *facts_p)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)link->pid, link->control_fd);
    return !stat(path, facts_p);
}

void stepaf_shm_identify(struct stepaf_shm_link *link, int fd)
{
    struct stat facts;

    link->control_fd = fd;
    if (stat_control(link, &facts))
        link->control_inode = facts.st_ino;
}

/* Return whether the peer's process has started another program, by exec. A process that is about
 * to end has closed its file descriptors, too, but not for long. */
static bool is_another_program(struct stepaf_shm_link *link)
{
    struct stat facts;
    bool was_closed = link->control_closed;

    if (!link->control_inode)
        return false;
    if (stat_control(link, &facts))
        return facts.st_ino != link->control_inode;
    link->control_closed = errno == ENOENT && process_state(link->pid) == PROCESS_LIVES;
    return link->control_closed && was_closed;
}

bool stepaf_shm_watch(struct stepaf_shm *shm, struct stepaf_shm_link *link, char *reason)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};

    stepaf_fd_begin();
    link->pidfd = stepaf_fd_end((int)syscall(SYS_pidfd_open, link->pid, 0));
    if (link->pidfd < 0) {
        bool missing = errno == ENOSYS || errno == EPERM;
        snprintf(reason, STEPAF_REASON_MAX, "pidfd_open(%d): %s", (int)link->pid,
                 stepaf_why(errno));
        shm->n_unwatched += missing;
        return missing;
    }
    if (epoll_ctl(shm->epoll_fd, EPOLL_CTL_ADD, link->pidfd, &event)) {
        snprintf(reason, STEPAF_REASON_MAX, "cannot watch its process: %s", stepaf_why(errno));
        close(link->pidfd);
        return false;
    }
    return true;
}

void stepaf_shm_unwatch(struct stepaf_shm *shm, struct stepaf_shm_link *link)
{
    if (link->pidfd >= 0)
        close(link->pidfd); /* which removes it from the epoll set */
    else
        shm->n_unwatched--;
}

static void forget_predecessor(struct stepaf_shm_predecessor *predecessor)
{
    if (predecessor->pid && predecessor->pidfd >= 0)
        close(predecessor->pidfd);
    predecessor->pid = 0;
}

void stepaf_shm_vacate(struct stepaf_shm *shm, struct stepaf_shm_link *link)
{
    struct stepaf_shm_predecessor *predecessor = &shm->predecessors[link->base.peer];

    forget_predecessor(predecessor);
    *predecessor = (struct stepaf_shm_predecessor){link->pid, link->pidfd};
    if (link->pidfd < 0)
        shm->n_unwatched--;
    else
        (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_DEL, link->pidfd, NULL);
    if (stepaf_shm_has_ended(link))
        forget_predecessor(predecessor);
}

bool stepaf_shm_is_vacant(struct stepaf_shm *shm, uint32_t peer, pid_t pid, char *reason)
{
    struct stepaf_shm_predecessor *predecessor = &shm->predecessors[peer];

    if (predecessor->pid && predecessor->pid != pid &&
        !process_has_ended(predecessor->pid, predecessor->pidfd)) {
        snprintf(reason, STEPAF_REASON_MAX,
                 "process %d, which had the rank's place, is still alive", (int)predecessor->pid);
        return false;
    }
    forget_predecessor(predecessor);
    return true;
}

void stepaf_shm_forget(struct stepaf_shm *shm)
{
    for (unsigned p = 0; p < shm->n_peers; p++)
        forget_predecessor(&shm->predecessors[p]);
}

/* Lose the peer: the messages that it sent last still count. */
static void lose(struct stepaf_shm *shm, struct stepaf_shm_link *link, const char *reason)
{
    struct stepaf_upcalls *up = shm->base.up;

    while (!link->base.dead && stepaf_shm_drain(link)) {
    }
    if (!link->base.dead)
        up->lost(up, &link->base, reason);
}

/* Return what a peer that has closed its pages to this rank has found. */
static const char *reason_of(const struct stepaf_shm_link *link)
{
    switch (stepaf_shm_closed_for(link->tx_words, link->own_pid)) {
    case STEPAF_SHM_UNWRITABLE:
        return "it has given up this rank: it could not write to registered memory of this rank, "
               "which is unmapped or read-only";
    case STEPAF_SHM_OWN_UNWRITABLE:
        return stepaf_unwritable_peers;
    default:
        return "it has given this rank up";
    }
}

/* Return why the peer is lost after its process has ended: what it found before says more. */
static const char *reason_of_end(const struct stepaf_shm_link *link)
{
    return stepaf_shm_closed_for(link->tx_words, link->own_pid) ? reason_of(link)
                                                                : "its process has ended";
}

static void check_programs(struct stepaf_shm *shm)
{
    int64_t now_ns = stepaf_monotonic_ns();

    if (now_ns < shm->same_program_ns)
        return;
    shm->same_program_ns = now_ns + SAME_PROGRAM_MS * 1000000LL;
    for (unsigned i = 0; i < shm->n_links; i++)
        if (!shm->links[i]->base.dead && is_another_program(shm->links[i]))
            lose(shm, shm->links[i], "its process runs another program now");
}

void stepaf_shm_check_peers(struct stepaf_transport *transport)
{
    struct stepaf_shm *shm = (struct stepaf_shm *)transport;
    struct epoll_event events[16];
    int n = epoll_wait(shm->epoll_fd, events, 16, 0);

    for (int i = 0; i < n; i++) {
        struct stepaf_shm_link *link = events[i].data.ptr;
        (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_DEL, link->pidfd, NULL);
        lose(shm, link, reason_of_end(link));
    }
    for (unsigned i = 0; i < shm->n_links; i++)
        if (shm->links[i]->shut ||
            stepaf_shm_closed_for(shm->links[i]->tx_words, shm->links[i]->own_pid))
            lose(shm, shm->links[i], reason_of(shm->links[i]));
    for (unsigned i = 0; shm->n_unwatched && i < shm->n_links; i++) {
        struct stepaf_shm_link *link = shm->links[i];
        if (link->pidfd < 0 && !link->base.dead && stepaf_shm_has_ended(link))
            lose(shm, link, reason_of_end(link));
    }
    check_programs(shm);
}

/* Close the pages to a peer, unless they are closed; return whether it is still writing there. */
static bool is_writing(struct stepaf_shm_link *link)
{
    stepaf_shm_close(link, STEPAF_SHM_GIVEN_UP);
    return atomic_load(&link->rx_words->writing) && !stepaf_shm_has_ended(link);
}

void stepaf_shm_fence(struct stepaf_link *link)
{
    stepaf_shm_close((struct stepaf_shm_link *)link, STEPAF_SHM_GIVEN_UP);
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
    int64_t deadline_ns = stepaf_deadline_ns(timeout_us);

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
