/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <stepaf/version.h>

#include "clock.h"
#include "links.h"

void perf_report_processor(char *text_p, size_t capacity)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");

    snprintf(text_p, capacity, "unknown processor");
    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *value = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || value == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text_p, capacity, "%s", value + 1 + strspn(value + 1, " "));
        break;
    }
    fclose(file);
}

static void print_machine(void)
{
    struct utsname kernel = {0};
    char model[128];

    perf_report_processor(model, sizeof(model));
    uname(&kernel);
    printf("# machine        %s, %ld cores, %s %s\n", model, sysconf(_SC_NPROCESSORS_ONLN),
           kernel.sysname, kernel.release);
    if (perf_clock_uses_counter)
        printf("# clock          processor counter, %.1f MHz, %.0f ns a stamp\n",
               1e3 / perf_clock_ns_per_tick, perf_clock_stamp_ns());
    else
        printf("# clock          clock_gettime, %.0f ns a stamp\n", perf_clock_stamp_ns());
}

static void print_options(const struct perf_options *options, const struct perf_place *place)
{
    printf("# in flight      %llu microbatches of depth %llu%s\n",
           (unsigned long long)options->microbatches, (unsigned long long)options->depth,
           options->scatter ? ", scatter: each FFN rank gets a slice" : "");
    printf("# FFN side       receives from %s, releases %s; tensors in %s %s\n",
           options->recv_each ? "each" : "any",
           options->release_apart ? "in a call of its own" : "with the response",
           options->user_memory ? "the user's registered" : "the library's",
           options->cuda.mem ? "GPU memory" : "memory");
    printf("# operations     at most %llu timed and %llu to warm up, for each attention rank",
           (unsigned long long)options->run.iters, (unsigned long long)options->run.warmup);
    if (options->run.max_time_s > 0)
        printf(", in about %llu s a row and contender",
               (unsigned long long)options->run.max_time_s);
    printf("\n");
    if (options->rows[0].shape.ndim > 0) {
        printf("# tensors        %s there, %s back", stepaf_dtype_name(options->push_dtype),
               stepaf_dtype_name(options->pull_dtype));
        if (options->route_topk > 0)
            printf(", and %llu i32 ids and f32 weights for each row",
                   (unsigned long long)options->route_topk);
        printf("\n");
    }
    if (options->check)
        printf("# check          about as many operations again, not timed: fresh random bytes "
               "each, all verified\n");
    if (!place->one_node && !options->no_floor)
        printf("# floor          plain TCP between all ranks, as they are on several nodes\n");
}

static void print_transport(const struct perf_options *options)
{
    const char *setting = perf_links_setting();

    if (setting[0] == '\0')
        return;
    printf("# transports     %s, by %s", setting,
           options->job.transport != NULL ? "--transport" : "STEPAF_TRANSPORTS");
    if (options->job.transport_before != NULL)
        printf(", which overrides STEPAF_TRANSPORTS=%s", options->job.transport_before);
    printf("\n");
}

static void print_ranks(const struct perf_place *place)
{
    printf("#\n# %5s %-20s %-9s %5s %8s  %s\n", "ID", "host", "role", "rank", "pid", "cores");
    for (int i = 0; i < place->size; i++) {
        const struct perf_rank *rank = &place->ranks[i];

        printf("# %5d %-20s %-9s %5d %8d  %s\n", i, rank->host,
               rank->role == STEPAF_ATTENTION ? "attention" : "ffn", rank->index, rank->pid,
               rank->cores);
    }
    printf("#\n");
}

void perf_report_begin(const struct perf_job *job, const struct perf_options *options,
                       const struct perf_place *place, const struct perf_gpu *gpu)
{
    printf("# stepaf_perf    %s", stepaf_version());
    if (!options->startup)
        printf(", test %s: %s", perf_test_name(options->test), perf_test_text(options->test));
    printf("\n");
    print_machine();
    printf("# ranks          %d attention, %d FFN, %s\n", place->attn, place->ffn,
           options->job.procs > 0 ? "forked" : job->launcher);
    if (place->crowded)
        printf("#                more ranks than cores: waiting ranks give way\n");
    print_transport(options);
    if (!options->startup)
        print_options(options, place);
    if (gpu != NULL)
        perf_gpu_print(gpu, options, place);
    print_ranks(place);
    fflush(stdout);
}
