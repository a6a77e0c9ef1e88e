/* SPDX-License-Identifier: Apache-2.0 */
/* A long line between two network namespaces, for kernels without netem: line MICROSECONDS
 * NAMESPACE NAMESPACE
 *
 * Makes a tun device eth0 in both, and delays each packet by that time. Packets are as large as
 * TCP makes them where a NIC would segment them (TSO), so that the line is not the bottleneck.
 * The queue is for 256 MiB each way; packets beyond that wait in the device's own queue. Ends on
 * SIGTERM, and then reports the traffic and how late packets were. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    RING_BYTES = 256 << 20,
    PACKET_MOST = 66 << 10, /* with the device's header */
    BURST = 32,             /* packets one way before the other direction is served */
    DELAY_MOST_US = 10000000
};

/* The header of each packet in the ring. */
struct held {
    int64_t due_ns;
    uint64_t bytes; /* 0: none, the ring continues at its beginning */
};

struct way {
    int from, to;
    uint8_t *ring;
    size_t in, out; /* next to write, and oldest; equal: empty */
    struct {
        uint64_t packets, bytes, lost;
        int64_t late_ns, latest_ns;
    } count;
};

static volatile sig_atomic_t ended;

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

static void fail(const char *what)
{
    fprintf(stderr, "delay line: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* The device in a namespace. */
static int open_device(const char *network)
{
    char path[256];
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};

    snprintf(path, sizeof(path), "/run/netns/%s", network);
    int in = open(path, O_RDONLY | O_CLOEXEC);
    if (in < 0 || setns(in, CLONE_NEWNET))
        fail(path);
    close(in);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        fail("/dev/net/tun");
    strcpy(request.ifr_name, "eth0");
    if (ioctl(fd, TUNSETIFF, &request))
        fail("making eth0");
    if (ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6))
        fail("large packets");
    return fd;
}

/* Return space for one more packet, or NULL. */
static struct held *place(struct way *way)
{
    size_t need = sizeof(struct held) + PACKET_MOST;

    if (way->in >= way->out) {
        if (RING_BYTES - way->in >= need + sizeof(struct held))
            return (struct held *)(way->ring + way->in);
        if (way->out <= need)
            return NULL;
        ((struct held *)(way->ring + way->in))->bytes = 0;
        way->in = 0;
    }
    return way->out - way->in > need ? (struct held *)(way->ring + way->in) : NULL;
}

static size_t after(size_t at, uint64_t bytes)
{
    return at + (sizeof(struct held) + bytes + 15) / 16 * 16;
}

/* Read the packets that have arrived. Returns whether there may be more. */
static int take(struct way *way, int64_t delay_ns)
{
    for (int i = 0; i < BURST; i++) {
        struct held *held = place(way);
        if (!held)
            return 0;
        ssize_t got = read(way->from, held + 1, PACKET_MOST);
        if (got <= 0)
            return 0;
        held->due_ns = now_ns() + delay_ns;
        held->bytes = (uint64_t)got;
        way->in = after(way->in, held->bytes);
    }
    return 1;
}

/* Return the oldest packet, or NULL. */
static struct held *oldest(struct way *way)
{
    if (way->in == way->out)
        return NULL;
    struct held *held = (struct held *)(way->ring + way->out);
    if (held->bytes)
        return held;
    way->out = 0;
    return way->in ? (struct held *)way->ring : NULL;
}

/* Send the packets that are due. Returns the nanoseconds until the next is due; -1: there is
 * none. */
static int64_t hand_on(struct way *way)
{
    for (int i = 0; i < BURST; i++) {
        struct held *held = oldest(way);
        if (!held)
            return -1;
        int64_t late_ns = now_ns() - held->due_ns;
        if (late_ns < 0)
            return -late_ns;
        if (write(way->to, held + 1, held->bytes) < 0)
            way->count.lost++;
        way->count.packets++;
        way->count.bytes += held->bytes;
        way->count.late_ns += late_ns;
        if (late_ns > way->count.latest_ns)
            way->count.latest_ns = late_ns;
        way->out = after(way->out, held->bytes);
    }
    return 0;
}

static void run(struct way *ways, int64_t delay_ns, const sigset_t *signals)
{
    struct pollfd polls[2] = {{.fd = ways[0].from, .events = POLLIN},
                              {.fd = ways[1].from, .events = POLLIN}};

    while (!ended) {
        int64_t next_ns = -1;
        for (int i = 0; i < 2; i++) {
            int more = take(&ways[i], delay_ns);
            int64_t due_ns = hand_on(&ways[i]);
            if (more)
                due_ns = 0;
            if (due_ns >= 0 && (next_ns < 0 || due_ns < next_ns))
                next_ns = due_ns;
            /* Packets without space wait in the device. */
            polls[i].events = place(&ways[i]) ? POLLIN : 0;
        }
        struct timespec timeout = {next_ns / 1000000000, next_ns % 1000000000};
        if (next_ns && ppoll(polls, 2, next_ns < 0 ? NULL : &timeout, signals) < 0 &&
            errno != EINTR)
            fail("waiting");
    }
}

/* Polling ranks leave it no core otherwise. */
static void go_first(void)
{
    struct sched_param first = {.sched_priority = 1};

    if (sched_setscheduler(0, SCHED_FIFO, &first))
        (void)setpriority(PRIO_PROCESS, 0, -20);
}

static void report(const struct way *way, const char *from, const char *to)
{
    double packets = way->count.packets ? (double)way->count.packets : 1;

    printf(
        "%s to %s: %.0f packets, %.1f MB, late by %.1f us on average, %.0f at most; %.0f refused\n",
        from, to, (double)way->count.packets, (double)way->count.bytes / 1e6,
        (double)way->count.late_ns / 1e3 / packets, (double)way->count.latest_ns / 1e3,
        (double)way->count.lost);
}

int main(int argc, char **argv)
{
    struct way ways[2] = {{0}};
    struct sigaction action = {.sa_handler = end};
    sigset_t mask, before;
    char *rest;

    long delay_us = argc == 4 ? strtol(argv[1], &rest, 10) : -1;
    if (delay_us < 0 || delay_us > DELAY_MOST_US || rest == argv[1] || *rest) {
        fprintf(stderr, "usage: line MICROSECONDS NAMESPACE NAMESPACE\n");
        return 2;
    }
    int a = open_device(argv[2]), b = open_device(argv[3]);
    for (int i = 0; i < 2; i++) {
        ways[i].from = i ? b : a;
        ways[i].to = i ? a : b;
        ways[i].ring = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (ways[i].ring == MAP_FAILED)
            fail("memory");
    }
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_BLOCK, &mask, &before);
    sigaction(SIGTERM, &action, NULL);
    go_first();
    run(ways, delay_us * INT64_C(1000), &before);
    for (int i = 0; i < 2; i++)
        report(&ways[i], argv[2 + i], argv[3 - i]);
    return 0;
}
