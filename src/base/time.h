/* SPDX-License-Identifier: Apache-2.0 */
/* Time: cheap stamps on the hot path, deadlines elsewhere. */
#ifndef STEPAF_BASE_TIME_H
#define STEPAF_BASE_TIME_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
static inline int64_t stepaf_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* What it will be @a timeout_us from now, which is now where that is negative; INT64_MAX where it is
 * too much for that. */
static inline int64_t stepaf_deadline_ns(int64_t timeout_us)
{
    int64_t deadline_ns;

    if (__builtin_mul_overflow(timeout_us > 0 ? timeout_us : 0, 1000, &deadline_ns) ||
        __builtin_add_overflow(deadline_ns, stepaf_monotonic_ns(), &deadline_ns))
        return INT64_MAX;
    return deadline_ns;
}

/* Microseconds until a time of that clock; never negative, which in many calls stands for the
 * default. */
static inline int64_t stepaf_left_us(int64_t deadline_ns)
{
    int64_t left = deadline_ns - stepaf_monotonic_ns();

    return left > 0 ? left / 1000 : 0;
}

/* How ticks relate to CLOCK_MONOTONIC: ns = base_ns + (ticks - base_ticks) * ns_per_tick. Where the
 * processor has no counter that runs at a constant rate, ticks are nanoseconds. Good to 20 ppm: for
 * durations and deadlines. What a stamp was on the clock, clock_history.h says. */
struct stepaf_clock {
    uint64_t base_ticks;
    int64_t base_ns;
    double ns_per_tick;
    double ticks_per_us;
};

/* Whether ticks come from the processor's counter (invariant, and the kernel trusts it). Set once
 * by stepaf_clock_calibrate, before any other thread reads it. */
extern int stepaf_ticks_from_counter;

/* A stamp: about 10 ns, no system call. */
static inline uint64_t stepaf_ticks(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(stepaf_ticks_from_counter, 1))
        return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    if (__builtin_expect(stepaf_ticks_from_counter, 1)) {
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    }
#endif
    return (uint64_t)stepaf_monotonic_ns();
}

/* One reading of both clocks at (nearly) the same time: ns was read somewhere in width ticks, of
 * which ticks is the middle. */
struct stepaf_clock_sample {
    uint64_t ticks;
    int64_t ns;
    uint64_t width;
};

/* Read both clocks, the best of so many tries, which take some 50 ns each. */
struct stepaf_clock_sample stepaf_clock_read(int tries);

/* Measure *clock_p against CLOCK_MONOTONIC (a few ms the first time in a process; a later call
 * takes the base anew, and the rate over all the time since). */
void stepaf_clock_calibrate(struct stepaf_clock *clock_p);
/* The process's first reading, from which the rate is measured; it is calibrated. */
struct stepaf_clock_sample stepaf_clock_first(void);

static inline int64_t stepaf_clock_to_ns(const struct stepaf_clock *clock, uint64_t ticks)
{
    return clock->base_ns +
           (int64_t)((double)(int64_t)(ticks - clock->base_ticks) * clock->ns_per_tick);
}

/* Tell the core that this is a spin loop. */
static inline void stepaf_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

#endif
