/* SPDX-License-Identifier: Apache-2.0 */
/* What processes share. */
#include "softnic.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Who is alive holds the lock of its file. */
static int own_fd = -1;

static struct peer {
    uint32_t pid;
    int fd;
    struct softnic_port *port;
    uint64_t seen_ns;
    bool gone;
} peers[SOFTNIC_PEERS];
static unsigned n_peers;

uint64_t softnic_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t softnic_random(void)
{
    uint64_t x = softnic.seed += 0x9e3779b97f4a7c15;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static void name_of(uint32_t pid, char name[64])
{
    snprintf(name, 64, "/dev/shm/softnic.%u.%u", (unsigned)getuid(), pid);
}

static struct softnic_port *map(int fd)
{
    void *port = mmap(NULL, sizeof(struct softnic_port), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return port == MAP_FAILED ? NULL : port;
}

bool softnic_port_open(void)
{
    pthread_mutexattr_t attr;
    char name[64];

    softnic.pid = (uint32_t)getpid();
    name_of(softnic.pid, name);
    (void)unlink(name); /* of a process of before with this number */
    own_fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (own_fd < 0 || flock(own_fd, LOCK_EX) || ftruncate(own_fd, sizeof(struct softnic_port)))
        return false;
    softnic.port = map(own_fd);
    if (!softnic.port)
        return false;
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* peers write here */
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&softnic.port->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    atomic_store(&softnic.port->ready, true);
    return true;
}

void softnic_port_close(void)
{
    char name[64];

    name_of(softnic.pid, name);
    (void)unlink(name);
    for (unsigned i = 0; i < n_peers; i++) {
        munmap(peers[i].port, sizeof(*peers[i].port));
        close(peers[i].fd);
    }
    n_peers = 0;
    munmap(softnic.port, sizeof(*softnic.port));
    close(own_fd);
    softnic.port = NULL;
}

/* That of one that is gone, or another one; NULL: there are too many. */
static struct peer *place_for_one(void)
{
    for (unsigned i = 0; i < n_peers; i++)
        if (!softnic_is_alive(peers[i].pid)) {
            munmap(peers[i].port, sizeof(*peers[i].port));
            close(peers[i].fd);
            return &peers[i];
        }
    return n_peers < SOFTNIC_PEERS ? &peers[n_peers++] : NULL;
}

static struct peer *find(uint32_t pid)
{
    char name[64];

    for (unsigned i = 0; i < n_peers; i++)
        if (peers[i].pid == pid)
            return &peers[i];
    name_of(pid, name);
    struct peer peer = {.pid = pid, .fd = open(name, O_RDWR | O_CLOEXEC)};
    if (peer.fd < 0)
        return NULL;
    peer.port = map(peer.fd);
    struct peer *place = peer.port && atomic_load(&peer.port->ready) ? place_for_one() : NULL;
    if (!place) {
        if (peer.port)
            munmap(peer.port, sizeof(*peer.port));
        close(peer.fd);
        return NULL;
    }
    *place = peer;
    return place;
}

struct softnic_port *softnic_port_of(uint32_t pid)
{
    if (pid == softnic.pid)
        return softnic.port;
    struct peer *peer = find(pid);
    return peer && !peer->gone ? peer->port : NULL;
}

bool softnic_is_alive(uint32_t pid)
{
    enum { LOOK_NS = 2000000 };
    uint64_t now = softnic_now_ns();
    char name[64];

    if (pid == softnic.pid)
        return true;
    struct peer *peer = find(pid);
    if (!peer || peer->gone)
        return false;
    if (now - peer->seen_ns < LOOK_NS)
        return true;
    peer->seen_ns = now;
    if (!flock(peer->fd, LOCK_SH | LOCK_NB)) { /* nobody holds it */
        (void)flock(peer->fd, LOCK_UN);
        peer->gone = true;
        name_of(pid, name);
        (void)unlink(name); /* who was killed has not done so */
    }
    return !peer->gone;
}

void softnic_wake(struct softnic_port *port)
{
    atomic_fetch_add(&port->wakes, 1);
    if (atomic_load(&port->asleep))
        (void)syscall(SYS_futex, &port->wakes, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void softnic_sleep(uint64_t most_ns)
{
    static uint32_t seen;
    struct softnic_port *port = softnic.port;
    struct timespec most = {(time_t)(most_ns / 1000000000), (long)(most_ns % 1000000000)};

    if (atomic_load(&port->wakes) == seen) {
        atomic_store(&port->asleep, true);
        (void)syscall(SYS_futex, &port->wakes, FUTEX_WAIT, seen, &most, NULL, 0);
        atomic_store(&port->asleep, false);
    }
    seen = atomic_load(&port->wakes);
}

void softnic_port_lock(struct softnic_port *port)
{
    if (pthread_mutex_lock(&port->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&port->lock);
}

/* The lock is held. */
void softnic_complete(struct softnic_port *port, uint32_t cq, const struct ibv_wc *wc)
{
    struct softnic_shared_cq *shared = &port->cqs[cq];
    uint32_t head = atomic_load_explicit(&shared->head, memory_order_relaxed);

    shared->wcs[head % SOFTNIC_WCS] = *wc;
    atomic_store_explicit(&shared->head, head + 1, memory_order_release);
}
