/* SPDX-License-Identifier: Apache-2.0 */
#include "base/time.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { CALIBRATION_TRIES = 16 };

int stepaf_ticks_from_counter;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int measured;                     /* the rest is valid */
static struct stepaf_clock_sample first; /* the process's first reading */
static double ns_per_tick;

#if defined(__x86_64__)
/* Return whether the CPU promises a counter of constant rate that never stops. */
static int counter_is_invariant(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
}

/* Return whether the kernel itself uses the bare counter as its clock. The kernel checks at boot,
 * and watches later, that the counters of all cores agree, which the CPU's promise does not cover.
 * Other clock sources are not good enough even if they are derived from the counter: a guest on
 * kvm-clock or Hyper-V's page can be moved to a host with another rate, which those sources allow
 * for and the bare counter does not. A guest whose counter is safe gets "tsc" from any recent
 * kernel. */
static int counter_is_trusted(void)
{
    char name[16] = "";
    int fd = stepaf_fd_open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                            O_RDONLY);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, name, sizeof name - 1);
    close(fd);
    return n > 0 && strcmp(name, "tsc\n") == 0;
}
#endif

static int counter_is_usable(void)
{
#if defined(__x86_64__)
    return counter_is_invariant() && counter_is_trusted();
#elif defined(__aarch64__)
    return 1; /* the architecture's generic timer, which the kernel uses, too */
#else
    return 0;
#endif
}

/* Return the least interrupted of a few tries: the middle of the closest pair of ticks around a
 * reading of the clock. */
struct stepaf_clock_sample stepaf_clock_read(int tries)
{
    struct stepaf_clock_sample best = {0, 0, UINT64_MAX};

    for (int i = 0; i < tries; i++) {
        uint64_t before = stepaf_ticks();
        int64_t ns = stepaf_monotonic_ns();
        uint64_t width = stepaf_ticks() - before;
        if (width < best.width)
            best = (struct stepaf_clock_sample){before + width / 2, ns, width};
    }
    return best;
}

static double rate_since_first(struct stepaf_clock_sample now)
{
    return (double)(now.ns - first.ns) / (double)(now.ticks - first.ticks);
}

/* The first calibration in a process waits 2 ms, asleep, so that ranks that share a core do not pay
 * for each other. With readings good to some 20 ns, the rate is good to 20 ppm. Every later
 * calibration (of another context) measures over the whole time since the first, which is far
 * better and costs nothing. core/clock_keep.h takes the readings that a context needs more
 * often. */
static void measure(struct stepaf_clock_sample *now_p)
{
    static const int64_t span_ns = 2000000;
    if (!measured) {
        stepaf_ticks_from_counter = counter_is_usable();
        first = stepaf_clock_read(CALIBRATION_TRIES);
        ns_per_tick = 1.0;
        measured = 1;
    }
    *now_p = stepaf_clock_read(CALIBRATION_TRIES);
    if (!stepaf_ticks_from_counter)
        return;
    while (now_p->ns - first.ns < span_ns) {
        int64_t left_ns = span_ns - (now_p->ns - first.ns);
        nanosleep(&(struct timespec){0, (long)left_ns}, NULL);
        *now_p = stepaf_clock_read(CALIBRATION_TRIES);
    }
    ns_per_tick = rate_since_first(*now_p);
}

void stepaf_clock_calibrate(struct stepaf_clock *clock_p)
{
    struct stepaf_clock_sample now;
    pthread_mutex_lock(&lock);
    measure(&now);
    clock_p->base_ticks = now.ticks;
    clock_p->base_ns = now.ns;
    clock_p->ns_per_tick = ns_per_tick;
    clock_p->ticks_per_us = 1000.0 / ns_per_tick;
    pthread_mutex_unlock(&lock);
}

struct stepaf_clock_sample stepaf_clock_first(void)
{
    pthread_mutex_lock(&lock);
    struct stepaf_clock_sample sample = first;
    pthread_mutex_unlock(&lock);
    return sample;
}
