/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <stepaf/types.h>

enum { HOST_COLUMN = 16 };

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

struct report_shares report_shares(const struct summary *summary)
{
    struct layer_stats total = stats_total(summary->layers, summary->n_layers);
    double ffn_library = 0;
    double ffn_time = 0;
    for (int i = 0; i < summary->n_ranks; i++) {
        const struct ffn_stats *ffn = &summary->ranks[i].ffn;
        ffn_library += (double)ffn->library_ns;
        ffn_time += (double)(ffn->end_ns - ffn->begin_ns);
    }
    double communication = (double)(total.a2f_ns + total.f2a_ns);
    return (struct report_shares){
        .hidden = ratio((double)(total.round_trip_ns - total.wait_ns), (double)total.round_trip_ns),
        .communication_hidden = ratio(communication - (double)total.exposed_ns, communication),
        .library_attention = ratio((double)total.library_ns, summary->steady_ns),
        .library_ffn = ratio(ffn_library, ffn_time),
    };
}

/* What a column holds of a host's name: of a long one both ends. */
static const char *fit_host(const char *host, char fit_p[HOST_COLUMN + 1])
{
    size_t bytes = strlen(host);

    if (bytes <= HOST_COLUMN)
        return host;
    snprintf(fit_p, HOST_COLUMN + 1, "%.7s..%s", host, host + bytes - 7);
    return fit_p;
}

void report_map(FILE *file, const struct summary *summary)
{
    char host[HOST_COLUMN + 1];

    fprintf(file, "\nrank  role         host              pid      threads  weights    reaches\n");
    for (int i = 0; i < summary->n_ranks; i++) {
        const struct place *place = &summary->ranks[i].place;
        fprintf(file, "%4d  %-9s %2d  %-16s  %-7d  %7d  %5.1f MiB  %s\n", place->world,
                place->role == STEPAF_ATTENTION ? "attention" : "FFN", place->index,
                fit_host(place->host, host), place->pid, place->threads,
                (double)place->bytes_read / 1048576, place->transports);
    }
}

static void print_row(FILE *file, const char *name, const struct layer_stats *stats, int64_t per)
{
    double scale = per ? 1e-3 / (double)per : 0;
    fprintf(file, "%5s  %9.1f  %9.1f  %9.1f  %9.1f  %9.1f  %9.1f\n", name,
            (double)stats->attention_ns * scale, (double)stats->a2f_ns * scale,
            (double)stats->queue_ns * scale, (double)stats->ffn_ns * scale,
            (double)stats->f2a_ns * scale, (double)stats->wait_ns * scale);
}

static void print_layers(FILE *file, const struct summary *summary)
{
    struct layer_stats total = stats_total(summary->layers, summary->n_layers);
    fprintf(file, "\nOf a microbatch in a layer, mean in us:\n"
                  "layer  attention        A2F      queue        FFN        F2A    waiting\n");
    for (int i = 0; i < summary->n_layers; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        print_row(file, name, &summary->layers[i], summary->layers[i].exchanges);
    }
    print_row(file, "all", &total, total.exchanges);
}

static void print_shares(FILE *file, const struct summary *summary)
{
    struct report_shares shares = report_shares(summary);
    int crowded = 0;
    for (int i = 0; i < summary->n_ranks; i++)
        crowded |= summary->ranks[i].place.crowded;
    fprintf(file,
            "\nround trips     %.1f %% hidden behind other microbatches' attention\n"
            "communication   %.1f %% hidden (A2F and F2A)\n",
            100 * shares.hidden, 100 * shares.communication_hidden);
    /* A share that is mostly waiting for a core would be taken for the library's. */
    if (crowded)
        fputs("library         not told: with more ranks than cores, waiting for a core cannot be "
              "told from it,\n"
              "                and is in F2A as well; one rank of each role has a core on most "
              "machines\n",
              file);
    else
        fprintf(file,
                "library         %.1f %% of the time per token at attention ranks, %.1f %% of FFN "
                "ranks' time,\n"
                "                waiting for the other side's work not counted\n",
                100 * shares.library_attention, 100 * shares.library_ffn);
}

/* A rank with fewer sequences than microbatches has fewer microbatches. */
static void print_microbatches(FILE *file, const struct options *options,
                               const struct summary *summary)
{
    int attention = 0;
    for (int i = 0; i < summary->n_ranks; i++)
        attention += summary->ranks[i].place.role == STEPAF_ATTENTION;
    int most = (summary->n_sequences + attention - 1) / attention;
    fprintf(file, "microbatches    %d at each attention rank, %s\n",
            most < options->microbatches ? most : options->microbatches,
            options->scatter ? "scatter" : "broadcast");
}

void report_table(FILE *file, const struct options *options, const struct summary *summary)
{
    int distributed = summary->n_ranks > 1;
    fprintf(file, "\nsequences       %d\n", summary->n_sequences);
    if (!distributed)
        fprintf(file, "microbatches    1, in one process without the library\n");
    else
        print_microbatches(file, options, summary);
    fprintf(file, "tokens          %" PRId64 " in %.3f s, prompts included\n", summary->tokens,
            summary->seconds);
    if (summary->n_steps == 0)
        return;
    fprintf(file, "tokens/s        %.1f, once prompts are read\n", summary->tokens_per_second);
    fprintf(file, "time per token  p50 %.1f us, p99 %.1f us\n",
            stats_quantile(summary->steps_us, summary->n_steps, 0.5),
            stats_quantile(summary->steps_us, summary->n_steps, 0.99));
    print_layers(file, summary);
    if (distributed)
        print_shares(file, summary);
}

void report_verify(FILE *file, const struct verify_result *verify)
{
    fprintf(file,
            "\nreference       %" PRId64 " of %" PRId64 " tokens equal, in %" PRId64 " of %" PRId64
            " sequences\n",
            verify->tokens_equal, verify->tokens, verify->sequences_equal, verify->sequences);
    fprintf(file, "                logits within %.2g (limit %g)", verify->logits_error,
            VERIFY_LOGITS_LIMIT);
    if (verify->experts)
        fprintf(file, ", %" PRId64 " of %" PRId64 " experts equal, their weights within %.2g",
                verify->experts_equal, verify->experts, verify->weight_error);
    fputc('\n', file);
    if (verify->tossups)
        fprintf(file,
                "                %" PRId64 " sequences part from it where its own margin is "
                "under %g\n",
                verify->tossups, VERIFY_MARGIN_LIMIT);
    if (verify->expert_tossups)
        fprintf(file, "                %" PRId64 " experts differ where its own gap is under %g\n",
                verify->expert_tossups, VERIFY_GAP_LIMIT);
    if (verify->difference[0])
        fprintf(file, "                first difference: %s\n", verify->difference);
}

void report_steps(FILE *file, const struct summary *summary)
{
    if (summary->n_steps)
        fprintf(file, "time per token  p50 %.1f us, p99 %.1f us, at most %.1f us\n",
                stats_quantile(summary->steps_us, summary->n_steps, 0.5),
                stats_quantile(summary->steps_us, summary->n_steps, 0.99),
                stats_quantile(summary->steps_us, summary->n_steps, 1));
}

void report_replicas(FILE *file, const struct replicas *replicas)
{
    fprintf(file,
            "replicas        %d of each expert; %" PRId64
            " answers were asked for again, of another FFN rank\n"
            "                FFN rank   lost   back   away, ms   answers   since it is back\n",
            replicas->n, replicas->asked_again);
    for (int f = 0; f < replicas->ffn_ranks; f++) {
        const struct replica *replica = &replicas->ranks[f];
        fprintf(file, "                %8d   %4d   %4d   %8.1f   %7" PRId64 "   %16" PRId64 "\n", f,
                replica->n_lost, replica->n_back, (double)replica->away_ns * 1e-6, replica->answers,
                replica->n_back ? replica->answers_since : 0);
    }
}

int report_end(FILE *file, struct reason *reason)
{
    if (fflush(file))
        return reason_failed(reason, "standard output: %s", strerror(errno));
    return ferror(file) ? reason_failed(reason, "standard output: could not be written whole") : 0;
}

int report_try(const char *path, struct reason *reason)
{
    FILE *file = path ? fopen(path, "ab") : NULL;
    if (path && !file)
        return reason_bad_input(reason, "%s: cannot be written: %s", path, strerror(errno));
    if (file)
        fclose(file);
    return 0;
}
