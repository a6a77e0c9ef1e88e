/* SPDX-License-Identifier: Apache-2.0 */
/* Time stamps for latencies. The smallest operations take a few hundred nanoseconds: stamps read
 * the CPU's counter directly where it runs at a constant rate (some 10 ns), elsewhere
 * clock_gettime. All contenders of a run are timed alike. */
#ifndef PERF_CLOCK_H
#define PERF_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Set by perf_clock_init, before any stamp is taken. */
extern int perf_clock_uses_counter;
extern double perf_clock_ns_per_tick;

static inline int64_t perf_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline uint64_t perf_ticks(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(perf_clock_uses_counter, 1))
        return __builtin_ia32_rdtsc();
#endif
    return (uint64_t)perf_now_ns();
}

/* Choose the counter or clock_gettime, and measure the rate (20 ms). */
void perf_clock_init(void);

/* Cost of a stamp, ns: for the options block. */
double perf_clock_stamp_ns(void);

#endif
