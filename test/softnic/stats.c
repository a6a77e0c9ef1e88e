/* SPDX-License-Identifier: Apache-2.0 */
/* How long the wire takes, from the doorbell to the completion at the other end: size by size. */
#include "softnic.h"

#include <stdio.h>
#include <stdlib.h>

enum { SIZES = 24, SAMPLES = 1 << 15 };

static struct {
    uint64_t bytes;
    uint64_t n;
    uint32_t ns[SAMPLES];
} sizes[SIZES];

void softnic_note(uint64_t bytes, uint64_t ns)
{
    for (unsigned i = 0; i < SIZES; i++) {
        if (sizes[i].n && sizes[i].bytes != bytes)
            continue;
        sizes[i].bytes = bytes;
        sizes[i].ns[sizes[i].n++ % SAMPLES] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
        return;
    }
}

static int compare(const void *a, const void *b)
{
    const uint32_t *one = a, *other = b;

    return (*one > *other) - (*one < *other);
}

void softnic_report(void)
{
    const char *name = getenv("SOFTNIC_STATS");
    char path[512];

    if (!name || !*name)
        return;
    snprintf(path, sizeof(path), "%s.%u", name, softnic.pid);
    FILE *file = fopen(path, "we");
    if (!file)
        return;
    fprintf(file,
            "# the wire is made up; bytes, messages, us from doorbell to delivery: p50 p99\n");
    for (unsigned i = 0; i < SIZES && sizes[i].n; i++) {
        uint64_t n = sizes[i].n < SAMPLES ? sizes[i].n : SAMPLES;
        uint64_t half = n / 2, most = n - 1 - n / 100;
        qsort(sizes[i].ns, n, sizeof(sizes[i].ns[0]), compare);
        fprintf(file, "%llu %llu %.2f %.2f\n", (unsigned long long)sizes[i].bytes,
                (unsigned long long)sizes[i].n, sizes[i].ns[half] / 1e3, sizes[i].ns[most] / 1e3);
    }
    (void)fclose(file);
}
