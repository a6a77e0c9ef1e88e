/* SPDX-License-Identifier: Apache-2.0 */
/* Time: cheap stamps on the hot path, deadlines elsewhere. */
#ifndef STEPAF_BASE_TIME_H
#define STEPAF_BASE_TIME_H

#include <stdint.h>
#include <time.h>

/* Return the nanoseconds of CLOCK_MONOTONIC. */
static inline int64_t stepaf_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Return that clock's time @a timeout_us from now: now if @a timeout_us is negative, INT64_MAX if
 * the sum is too large. */
static inline int64_t stepaf_deadline_ns(int64_t timeout_us)
{
    int64_t deadline_ns;

    if (__builtin_mul_overflow(timeout_us > 0 ? timeout_us : 0, 1000, &deadline_ns) ||
        __builtin_add_overflow(deadline_ns, stepaf_monotonic_ns(), &deadline_ns))
        return INT64_MAX;
    return deadline_ns;
}

/* Return the microseconds until a time of that clock. Never negative, which in many calls stands
 * for the default. */
static inline int64_t stepaf_left_us(int64_t deadline_ns)
{
    int64_t left = deadline_ns - stepaf_monotonic_ns();

    return left > 0 ? left / 1000 : 0;
}

/* Return the earlier one of two times of that clock. */
static inline int64_t stepaf_earlier_ns(int64_t one_ns, int64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

/* Return the middle between now and a later time of that clock. */
static inline int64_t stepaf_halfway_ns(int64_t deadline_ns)
{
    int64_t now_ns = stepaf_monotonic_ns();

    return now_ns + (deadline_ns - now_ns) / 2;
}

/* How ticks relate to CLOCK_MONOTONIC: ns = base_ns + (ticks - base_ticks) * ns_per_tick. If the
 * CPU has no counter that runs at a constant rate, ticks are nanoseconds. Good to 20 ppm: for
 * durations and deadlines. clock_history.h converts stamps to times of the clock. */
struct stepaf_clock {
    uint64_t base_ticks;
    int64_t base_ns;
    double ns_per_tick;
    double ticks_per_us;
};

/* Whether ticks come from the CPU's counter (invariant, and trusted by the kernel). Set once by
 * stepaf_clock_calibrate, before any other thread reads it. */
extern int stepaf_ticks_from_counter;

/* Return a stamp: about 10 ns, no system call. */
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

/* One reading of both clocks at (nearly) the same time: ns was read somewhere within width ticks,
 * whose middle is ticks. */
struct stepaf_clock_sample {
    uint64_t ticks;
    int64_t ns;
    uint64_t width;
};

/* Read both clocks; return the best of so many tries, which take some 50 ns each. */
struct stepaf_clock_sample stepaf_clock_read(int tries);

/* Measure *clock_p against CLOCK_MONOTONIC. Takes a few ms the first time in a process. A later
 * call takes a new base, and the rate over the whole time since the first. */
void stepaf_clock_calibrate(struct stepaf_clock *clock_p);
/* Return the process's first reading, from which the rate is measured. The process must be
 * calibrated. */
struct stepaf_clock_sample stepaf_clock_first(void);

static inline int64_t stepaf_clock_to_ns(const struct stepaf_clock *clock, uint64_t ticks)
{
    return clock->base_ns +
           (int64_t)((double)(int64_t)(ticks - clock->base_ticks) * clock->ns_per_tick);
}

/* Tell the CPU that this is a spin loop. */
static inline void stepaf_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

#endif
