/* SPDX-License-Identifier: Apache-2.0 */
/* Interruptions of a core: it spins and reads the clock; gaps between two readings were taken
 * from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "doctor.h"

enum { BUCKETS = 7, SPIN_NS = 500000000 };

struct jitter {
    long long spun_ns;
    long long longest_ns;
    long long lost_ns; /* in gaps of a microsecond or more */
    long long gaps[BUCKETS];
};

static const long long starts_ns[BUCKETS] = {1000, 2000, 10000, 50000, 200000, 1000000, 10000000};
static const char *const bucket_names[BUCKETS] = {
    "1-2 us", "2-10 us", "10-50 us", "50-200 us", "0.2-1 ms", "1-10 ms", "10 ms and more"};

static long long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void take(struct jitter *jitter, long long gap_ns)
{
    int bucket = BUCKETS - 1;

    if (gap_ns > jitter->longest_ns)
        jitter->longest_ns = gap_ns;
    if (gap_ns < starts_ns[0])
        return;
    while (gap_ns < starts_ns[bucket])
        bucket--;
    jitter->gaps[bucket]++;
    jitter->lost_ns += gap_ns;
}

static void spin(struct jitter *jitter)
{
    long long begin = now_ns(), last = begin;

    while (last - begin < SPIN_NS) {
        long long now = now_ns();
        take(jitter, now - last);
        last = now;
    }
    jitter->spun_ns = last - begin;
}

/* For tests: read the gaps in ns, of half a second. */
static int read_gaps(const struct doctor *doctor, struct jitter *jitter)
{
    char text[4096];
    long long gap;

    if (!doctor_read_tried(doctor, text, sizeof text, "jitter"))
        return 0;
    for (char *word, *rest = text; (word = strsep(&rest, " \n"));) {
        if (!doctor_parse(word, &gap) || gap < 0 || gap > SPIN_NS)
            return 0;
        take(jitter, gap);
    }
    jitter->spun_ns = SPIN_NS;
    return 1;
}

void doctor_look_jitter(struct doctor *doctor)
{
    struct jitter jitter = {0};
    char histogram[DOCTOR_TEXT] = "";
    size_t used = 0;

    if (!doctor_is_test(doctor)) {
        spin(&jitter);
    } else if (!read_gaps(doctor, &jitter)) {
        doctor_say(doctor, DOCTOR_UNKNOWN, "it was not tried");
        return;
    }
    for (int i = 0; i < BUCKETS; i++)
        if (jitter.gaps[i] && used < sizeof histogram)
            used += (size_t)snprintf(histogram + used, sizeof histogram - used, "%s%lld of %s",
                                     used ? ", " : "; gaps: ", jitter.gaps[i], bucket_names[i]);
    double lost = 100.0 * (double)jitter.lost_ns / (double)jitter.spun_ns;
    doctor_say(doctor,
               jitter.longest_ns >= 10000000 || lost > 10.0 ? DOCTOR_FAILED
               : jitter.longest_ns >= 200000 || lost > 1.0  ? DOCTOR_WARNED
                                                            : DOCTOR_PASSED,
               "in %.2f s of spinning %.2f %% were lost, at most %.1f us at a time%s",
               (double)jitter.spun_ns / 1e9, lost, (double)jitter.longest_ns / 1e3, histogram);
}
