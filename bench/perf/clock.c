/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include <stdio.h>
#include <string.h>

int perf_clock_uses_counter;
double perf_clock_ns_per_tick = 1.0;

#if defined(__x86_64__)
/* The kernel's own judgement: it watches the counter and abandons it when it drifts. */
static int counter_is_trusted(void)
{
    char line[64] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");

    if (file == NULL)
        return 0;
    if (fgets(line, sizeof(line), file) == NULL)
        line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return strcmp(line, "tsc") == 0 || strcmp(line, "kvm-clock") == 0 ||
           strcmp(line, "hyperv_clocksource_tsc_page") == 0;
}

/* The counter and the clock at about the same moment, and how many ticks apart that may be. */
struct pair {
    uint64_t ticks, apart;
    int64_t ns;
};

static struct pair take_pair(void)
{
    uint64_t before = __builtin_ia32_rdtsc();
    int64_t ns = perf_now_ns();
    uint64_t apart = __builtin_ia32_rdtsc() - before;

    return (struct pair){.ticks = before + apart / 2, .apart = apart, .ns = ns};
}

/* Of several pairs, use the least disturbed one. */
static struct pair best_pair(void)
{
    struct pair best = take_pair();

    for (int i = 1; i < 16; i++) {
        struct pair next = take_pair();

        if (next.apart < best.apart)
            best = next;
    }
    return best;
}

void perf_clock_init(void)
{
    const struct timespec pause = {0, 20 * 1000 * 1000};

    if (!counter_is_trusted())
        return;
    struct pair first = best_pair();
    nanosleep(&pause, NULL);
    struct pair last = best_pair();
    if (last.ticks <= first.ticks || last.ns <= first.ns)
        return;
    perf_clock_ns_per_tick = (double)(last.ns - first.ns) / (double)(last.ticks - first.ticks);
    perf_clock_uses_counter = 1;
}
#else
void perf_clock_init(void)
{
}
#endif

double perf_clock_stamp_ns(void)
{
    enum { STAMPS = 2000 };
    uint64_t start = perf_ticks();
    uint64_t last = start;

    for (int i = 0; i < STAMPS; i++)
        last = perf_ticks();
    return (double)(last - start) * perf_clock_ns_per_tick / STAMPS;
}
