/* SPDX-License-Identifier: Apache-2.0 */
/* What has been done, and what came of it. */
#include <stdio.h>
#include <stdlib.h>

#include "chaos.h"

static int compare_ns(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return a < b ? -1 : a > b;
}

static void print_samples(const char *what, struct chaos_samples *samples)
{
    int n = atomic_load(&samples->n), kept = n < CHAOS_SAMPLES ? n : CHAOS_SAMPLES;
    int middle = (kept - 1) / 2, late = (kept * 99 - 1) / 100;

    qsort(samples->ns, (size_t)kept, sizeof(samples->ns[0]), compare_ns);
    if (kept)
        printf("%-30s %6d times: p50 %.1f ms, p99 %.1f ms, at most %.1f ms\n", what, n,
               (double)samples->ns[middle] / 1e6, (double)samples->ns[late] / 1e6,
               (double)samples->ns[kept - 1] / 1e6);
}

static void print_counts(const char *what, const _Atomic int64_t *counts)
{
    printf("%-30s", what);
    for (int i = 0; i < CHAOS_STATUSES; i++)
        if (atomic_load(&counts[i]))
            printf(" %lld %s", (long long)atomic_load(&counts[i]),
                   stepaf_status_name((stepaf_status_t)(1 - i)));
    printf("\n");
}

void chaos_report(const struct hs_job *job, struct chaos_page *page, double seconds, int keeper)
{
    const struct chaos_rank_page *its = &page->ranks[keeper];
    int64_t n = 0;

    for (int i = 0; i < CHAOS_N_FAULTS; i++)
        n += atomic_load(&page->made[i]);
    printf("chaos, seed %lld, %d ranks and room for %d, %.1f s: %lld faults, %lld lives, %d "
           "commits, %.1f MiB compared\n",
           hs_option_int(job, "--seed", 1), page->size, page->room, seconds, (long long)n,
           (long long)atomic_load(&page->lives), atomic_load(&page->generation),
           (double)atomic_load(&page->bytes) / 1048576);
    if (!HS_INT(n, >=, hs_option_int(job, "--least-faults", 0)))
        atomic_store(&page->failed, 1);
    if (!hs_option_int(job, "--report", 0) && !atomic_load(&page->failed))
        return;
    for (int i = 0; i < CHAOS_N_FAULTS; i++)
        printf("  %-50s %6lld made, %lld not possible\n", chaos_fault_name(i),
               (long long)atomic_load(&page->made[i]), (long long)atomic_load(&page->kept[i]));
    print_counts("operations", page->ops);
    print_counts("their answers", page->answers);
    printf("%-30s %lld\n", "batches served", (long long)atomic_load(&page->served));
    print_counts("commits, by rank", page->commits);
    print_counts("init and commit of guests", page->guests);
    printf("%-30s %lld\n", "given up by the others", (long long)atomic_load(&page->given_up));
    print_samples("from a death to its name", &page->named);
    print_samples("commits", &page->committed);
    print_samples("from a death to being back", &page->whole);
    if (atomic_load(&its->fds[0]) && atomic_load(&its->fds[1]))
        printf("rank %d, which was never killed: descriptors %lld (were %lld), mappings %lld "
               "(%lld), resident %lld KiB (%lld)\n",
               keeper, (long long)atomic_load(&its->fds[1]), (long long)atomic_load(&its->fds[0]),
               (long long)atomic_load(&its->mappings[1]), (long long)atomic_load(&its->mappings[0]),
               (long long)atomic_load(&its->resident[1]) >> 10,
               (long long)atomic_load(&its->resident[0]) >> 10);
}

static void print_ranks_of(uint64_t ranks)
{
    for (int r = 0; ranks; r++, ranks >>= 1)
        if (ranks & 1)
            fprintf(stderr, " %d", r);
    fprintf(stderr, "; ");
}

void chaos_report_ranks(const struct chaos_page *page)
{
    static const char *const places[] = {"down", "coming", "serving"};

    for (int r = 0; r < chaos_places(page); r++) {
        const struct chaos_rank_page *its = &page->ranks[r];
        const char *step = atomic_load(&its->step);
        uint64_t by = 0;
        if (!atomic_load(&its->has_begun))
            continue;
        for (int other = 0; other < chaos_places(page); other++)
            by |= (atomic_load(&page->ranks[other].lost) >> r & 1) << other;
        fprintf(stderr,
                "rank %d of %s: %s, life %d, \"%s\" since %.1f s, last a member of epoch %d, "
                "killed %d times; lost to it, as it saw last:",
                r, its->host, places[atomic_load(&its->place)], atomic_load(&its->life),
                step ? step : "start", (double)(hs_now_ns() - atomic_load(&its->beat_ns)) / 1e9,
                atomic_load(&its->epoch), atomic_load(&its->killed));
        print_ranks_of(atomic_load(&its->lost));
        fprintf(stderr, "it is lost to:");
        print_ranks_of(by);
        fprintf(stderr, "given up last: %s; not admitted last: %s\n",
                its->given_up[0] ? its->given_up : "never",
                its->not_admitted[0] ? its->not_admitted : "never");
    }
}
