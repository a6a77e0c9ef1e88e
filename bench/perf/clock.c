/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include <stdio.h>
#include <string.h>

int perf_clock_uses_counter;
double perf_clock_ns_per_tick = 1.0;

#if defined(__x86_64__)
/* The kernel's own verdict: it watches the counter and leaves it when it drifts. */
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

/* One (ticks, ns) pair; of several tries the one that was disturbed least. */
static void sample_pair(uint64_t *ticks_p, int64_t *ns_p)
{
    uint64_t best = UINT64_MAX;

    for (int i = 0; i < 16; i++) {
        uint64_t before = __rdtsc();
        int64_t ns = perf_now_ns();
        uint64_t after = __rdtsc();

        if (after - before < best) {
            best = after - before;
            *ticks_p = before + (after - before) / 2;
            *ns_p = ns;
        }
    }
}

void perf_clock_init(void)
{
    const struct timespec pause = {0, 20 * 1000 * 1000};
    uint64_t ticks[2];
    int64_t ns[2];

    if (!counter_is_trusted())
        return;
    sample_pair(&ticks[0], &ns[0]);
    nanosleep(&pause, NULL);
    sample_pair(&ticks[1], &ns[1]);
    if (ticks[1] <= ticks[0] || ns[1] <= ns[0])
        return;
    perf_clock_ns_per_tick = (double)(ns[1] - ns[0]) / (double)(ticks[1] - ticks[0]);
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
