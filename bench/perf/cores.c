/* SPDX-License-Identifier: Apache-2.0 */
#include "cores.h"

#include <stdio.h>

void perf_cores_list(const cpu_set_t *cpus, char *text, size_t capacity)
{
    size_t used = 0;

    text[0] = '\0';
    for (int first = 0; first < CPU_SETSIZE; first++) {
        const char *comma = used > 0 ? "," : "";
        int last = first;
        int n;

        if (!CPU_ISSET(first, cpus))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
            last++;
        if (last == first)
            n = snprintf(text + used, capacity - used, "%s%d", comma, first);
        else
            n = snprintf(text + used, capacity - used, "%s%d-%d", comma, first, last);
        if (n < 0 || used + (size_t)n >= capacity) {
            snprintf(text + capacity - 4, 4, "...");
            return;
        }
        used += (size_t)n;
        first = last;
    }
}

/* Whether @a cpu is the first hardware thread of its core; true where the kernel does not tell. */
static int is_first_thread(int cpu)
{
    char path[96];
    int first = cpu;
    FILE *file;

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             cpu);
    file = fopen(path, "re");
    if (file == NULL)
        return 1;
    if (fscanf(file, "%d", &first) != 1)
        first = cpu;
    fclose(file);
    return first == cpu;
}

void perf_cores_bind(int rank, int n)
{
    cpu_set_t allowed, mine;
    int place = 0;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < n)
        return;
    /* First threads of cores come first, so that two ranks share a core only if they must. */
    for (int first = 1; first >= 0; first--) {
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!CPU_ISSET(cpu, &allowed) || is_first_thread(cpu) != first || place++ != rank)
                continue;
            CPU_ZERO(&mine);
            CPU_SET(cpu, &mine);
            sched_setaffinity(0, sizeof(mine), &mine);
            return;
        }
    }
}
