/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1 /* sched_getaffinity */

#include "topo/cpus.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { WORD_BITS = 8 * (int)sizeof(unsigned long) };

/* Read a number at *c and move past it. Returns -1 if there is none or it is too large. */
static int parse_number(const char **c)
{
    int number = 0;
    if (**c < '0' || **c > '9')
        return -1;
    for (; **c >= '0' && **c <= '9'; (*c)++) {
        number = number * 10 + (**c - '0');
        if (number >= STEPAF_CPUS_MAX)
            return -1;
    }
    return number;
}

int stepaf_cpus_parse(const char *list, struct stepaf_cpus *cpus_p)
{
    memset(cpus_p, 0, sizeof *cpus_p);
    for (;;) {
        int first = parse_number(&list);
        int last = first;
        if (first >= 0 && *list == '-') {
            list++;
            last = parse_number(&list);
        }
        if (first < 0 || last < first)
            return 0;
        for (int cpu = first; cpu <= last; cpu++)
            cpus_p->bits[cpu / WORD_BITS] |= 1ul << (cpu % WORD_BITS);
        if (*list != ',')
            break;
        list++;
    }
    return list[strspn(list, " \n")] == '\0';
}

void stepaf_cpus_add(struct stepaf_cpus *cpus, const struct stepaf_cpus *more)
{
    for (size_t i = 0; i < STEPAF_CPUS_MAX / WORD_BITS; i++)
        cpus->bits[i] |= more->bits[i];
}

int stepaf_cpus_count(const struct stepaf_cpus *cpus)
{
    int count = 0;
    for (size_t i = 0; i < STEPAF_CPUS_MAX / WORD_BITS; i++)
        count += __builtin_popcountl(cpus->bits[i]);
    return count;
}

int stepaf_cpus_next(const struct stepaf_cpus *cpus, int from)
{
    unsigned long above = ~0ul << (from % WORD_BITS); /* in the first word */

    for (int i = from / WORD_BITS; i < STEPAF_CPUS_MAX / WORD_BITS; i++, above = ~0ul)
        if (cpus->bits[i] & above)
            return i * WORD_BITS + __builtin_ctzl(cpus->bits[i] & above);
    return -1;
}

/* Return the last of the members that follow @a first without a gap. */
static int end_of_run(const struct stepaf_cpus *cpus, int first)
{
    int last = first;
    while (stepaf_cpus_next(cpus, last + 1) == last + 1)
        last++;
    return last;
}

void stepaf_cpus_format(const struct stepaf_cpus *cpus, char *list, size_t capacity)
{
    static const char more[] = "...";
    size_t used = 0;
    if (capacity == 0)
        return;
    list[0] = '\0';
    for (int first = stepaf_cpus_next(cpus, 0); first >= 0;) {
        char run[32];
        int last = end_of_run(cpus, first);
        int n = first == last ? snprintf(run, sizeof run, "%s%d", used ? "," : "", first)
                              : snprintf(run, sizeof run, "%s%d-%d", used ? "," : "", first, last);
        int is_last = stepaf_cpus_next(cpus, last + 1) < 0;
        if (used + (size_t)n + (is_last ? 1 : sizeof more) > capacity) {
            snprintf(list + used, capacity - used, "%s", more);
            return;
        }
        memcpy(list + used, run, (size_t)n + 1);
        used += (size_t)n;
        first = stepaf_cpus_next(cpus, last + 1);
    }
}

int stepaf_cpus_usable(struct stepaf_cpus *cpus_p)
{
    memset(cpus_p, 0, sizeof *cpus_p);
    return sched_getaffinity(0, sizeof cpus_p->bits, (cpu_set_t *)cpus_p->bits) == 0 &&
           stepaf_cpus_count(cpus_p) > 0;
}
