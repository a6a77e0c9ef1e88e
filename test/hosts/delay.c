/* SPDX-License-Identifier: Apache-2.0 */
/* A cable between two hosts of hosts.sh that takes its time: where the kernel has no netem.
 *
 *   delay HOST ADDRESS HOST ADDRESS MICROSECONDS
 *
 * Makes eth0 in the network namespaces HOST, with these addresses (10.77.0.1/24), and carries each
 * frame from one to the other, so much later. It says "up" on its output when both are there, and
 * ends with its input. A line of that is how late frames are from now on, in microseconds; "cut":
 * they are lost; "cut MILLISECONDS": for so long, and then no frame is late. Whoever says so may
 * not have a core when that time is over. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { FRAMES = 4096, FRAME_BYTES = 2048, LINE_BYTES = 32, IS_CUT = -1, FIRST = -10 };

struct frame {
    int64_t due_ns;
    ssize_t bytes;
    unsigned char data[FRAME_BYTES];
};

/* What is on its way from one end. */
struct way {
    int from, to;
    struct frame *frames; /* FRAMES */
    unsigned head, tail;
};

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "delay: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* In the namespace @a host, which this process is in from then on. */
static int make_end(const char *host, const char *address)
{
    char path[128], command[256];
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};

    snprintf(path, sizeof path, "/run/netns/%s", host);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) < 0)
        die(path);
    close(space);
    int end = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    strcpy(request.ifr_name, "eth0");
    if (end < 0 || ioctl(end, TUNSETIFF, &request) < 0)
        die("/dev/net/tun");
    snprintf(command, sizeof command,
             "ip link set lo up && ip link set eth0 up && ip address add %s dev eth0", address);
    if (system(command) != 0)
        die("ip");
    return end;
}

static void take_in(struct way *way, int64_t delay_ns)
{
    unsigned char lost[FRAME_BYTES];

    while (1) {
        struct frame *frame = &way->frames[way->head % FRAMES];
        if (way->head - way->tail == FRAMES) {
            if (read(way->from, lost, sizeof lost) <= 0)
                return;
            continue;
        }
        frame->bytes = read(way->from, frame->data, sizeof frame->data);
        if (frame->bytes <= 0)
            return;
        if (delay_ns == IS_CUT)
            continue;
        frame->due_ns = now_ns() + delay_ns;
        way->head++;
    }
}

/* Nanoseconds until the next one is due; a second if there is none. */
static int64_t give_out(struct way *way)
{
    while (way->tail != way->head) {
        const struct frame *frame = &way->frames[way->tail % FRAMES];
        int64_t left = frame->due_ns - now_ns();
        if (left > 0)
            return left;
        if (write(way->to, frame->data, (size_t)frame->bytes) < 0 && errno != EAGAIN)
            die("write");
        way->tail++;
    }
    return 1000000000;
}

static void heed_line(const char *line, int64_t *delay_ns, int64_t *mend_ns)
{
    bool is_cut = strncmp(line, "cut", 3) == 0;

    *delay_ns = is_cut ? IS_CUT : strtoll(line, NULL, 10) * 1000;
    *mend_ns = is_cut && line[3] ? now_ns() + strtoll(line + 3, NULL, 10) * 1000000 : INT64_MAX;
}

/* Do what the lines say that have come; false: that was all. */
static int heed_lines(int64_t *delay_ns, int64_t *mend_ns)
{
    static char line[LINE_BYTES];
    static size_t used;
    char c;
    ssize_t n;

    while ((n = read(0, &c, 1)) == 1) {
        if (c != '\n') {
            if (used < sizeof line - 1)
                line[used++] = c;
            continue;
        }
        line[used] = '\0';
        used = 0;
        heed_line(line, delay_ns, mend_ns);
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

int main(int argc, char **argv)
{
    struct way ways[2];

    if (argc != 6) {
        fprintf(stderr, "usage: delay HOST ADDRESS HOST ADDRESS MICROSECONDS\n");
        return 2;
    }
    int64_t delay_ns = strtoll(argv[5], NULL, 10) * 1000, mend_ns = INT64_MAX;
    for (int i = 0; i < 2; i++) {
        ways[i] = (struct way){.from = make_end(argv[1 + 2 * i], argv[2 + 2 * i]),
                               .frames = calloc(FRAMES, sizeof(struct frame))};
        if (!ways[i].frames)
            die("memory");
    }
    ways[0].to = ways[1].from;
    ways[1].to = ways[0].from;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    (void)setpriority(PRIO_PROCESS, 0, FIRST); /* a cable waits for no core, where it may say so */
    puts("up");
    fflush(stdout);
    struct pollfd polls[3] = {{.fd = ways[0].from, .events = POLLIN},
                              {.fd = ways[1].from, .events = POLLIN},
                              {.fd = 0, .events = POLLIN}};
    if (fcntl(0, F_SETFL, O_NONBLOCK) < 0)
        die("standard input");
    while (!polls[2].revents || heed_lines(&delay_ns, &mend_ns)) {
        int64_t left = give_out(&ways[0]), other = give_out(&ways[1]);
        if (mend_ns - now_ns() < left)
            left = mend_ns > now_ns() ? mend_ns - now_ns() : 0;
        struct timespec wait = {0, (long)(left < other ? left : other)};
        if (wait.tv_nsec >= 1000000000)
            wait = (struct timespec){1, 0};
        if (ppoll(polls, 3, &wait, NULL) < 0 && errno != EINTR)
            die("poll");
        if (now_ns() >= mend_ns) {
            mend_ns = INT64_MAX;
            delay_ns = 0;
        }
        take_in(&ways[0], delay_ns);
        take_in(&ways[1], delay_ns);
    }
    return 0;
}
