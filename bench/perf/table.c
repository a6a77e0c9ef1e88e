/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <stdio.h>
#include <string.h>

/* When a column is shown in text; CSV has all. */
enum shown { ALWAYS, IN_FLIGHT, RATE, CHECKED, BASELINE, FLOOR_BESIDE };

/* One column: heads, digits after the point, and where its number comes from. */
struct column {
    const char *head, *unit, *csv;
    int width, digits;
    enum shown shown;
    double (*get)(const struct perf_result *r);
};

static const struct perf_stats *of(const struct perf_result *r)
{
    return &r->stats[perf_result_main(r)];
}

static double ratio(double ours, double theirs)
{
    return theirs > 0.0 ? ours / theirs : 0.0;
}

#define GETTER(name_, value_)                              \
    static double get_##name_(const struct perf_result *r) \
    {                                                      \
        return (double)(value_);                           \
    }
GETTER(push, r->c.push_bytes)
GETTER(pull, r->c.pull_bytes)
GETTER(reps, r->iters)
GETTER(min, of(r)->min)
GETTER(p50, of(r)->p50)
GETTER(p99, of(r)->p99)
GETTER(p999, of(r)->p999)
GETTER(max, of(r)->max)
GETTER(avg, of(r)->avg)
GETTER(stddev, of(r)->stddev_pct)
GETTER(gb, r->gb_per_s)
GETTER(per_op, r->us_per_op[perf_result_main(r)])
GETTER(rate, r->ops_per_s)
GETTER(wrong, r->wrong_bytes)
GETTER(checked, r->checked_ops)
GETTER(mpi, r->stats[PERF_MPI].p50)
GETTER(mpi_ratio, ratio(of(r)->p50, r->stats[PERF_MPI].p50))
GETTER(mpi_per_op, r->us_per_op[PERF_MPI])
GETTER(floor, r->stats[PERF_FLOOR_LOOP].p50)
GETTER(floor_ratio, ratio(of(r)->p50, r->stats[PERF_FLOOR_LOOP].p50))
#undef GETTER

static const struct column columns[] = {
    {"#bytes", "push", "push_bytes", 11, 0, ALWAYS, get_push},
    {"#bytes", "pull", "pull_bytes", 11, 0, ALWAYS, get_pull},
    {"#repetitions", "", "repetitions", 13, 0, ALWAYS, get_reps},
    {"t_min", "[usec]", "min_us", 10, 3, ALWAYS, get_min},
    {"t_p50", "[usec]", "p50_us", 10, 3, ALWAYS, get_p50},
    {"t_p99", "[usec]", "p99_us", 10, 3, ALWAYS, get_p99},
    {"t_p99.9", "[usec]", "p999_us", 10, 3, ALWAYS, get_p999},
    {"t_max", "[usec]", "max_us", 10, 3, ALWAYS, get_max},
    {"t_avg", "[usec]", "avg_us", 10, 3, ALWAYS, get_avg},
    {"stddev", "[%]", "stddev_pct", 8, 1, ALWAYS, get_stddev},
    {"GB/s", "", "gb_per_s", 9, 3, ALWAYS, get_gb},
    {"t/op", "[usec]", "us_per_op", 10, 3, IN_FLIGHT, get_per_op},
    {"ops/s", "", "ops_per_s", 11, 0, RATE, get_rate},
    {"wrong", "bytes", "wrong_bytes", 7, 0, CHECKED, get_wrong},
    {"of #ops", "", "checked_ops", 9, 0, CHECKED, get_checked},
    {"mpi p50", "[usec]", "mpi_p50_us", 10, 3, BASELINE, get_mpi},
    {"ours", "/ mpi", "ours_to_mpi", 7, 2, BASELINE, get_mpi_ratio},
    {"mpi t/op", "[usec]", "mpi_us_per_op", 10, 3, IN_FLIGHT, get_mpi_per_op},
    {"floor p50", "[usec]", "floor_p50_us", 10, 3, FLOOR_BESIDE, get_floor},
    {"ours", "/ floor", "ours_to_floor", 8, 2, FLOOR_BESIDE, get_floor_ratio},
};

enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* Whether the run has such numbers at all. */
static int is_there(const struct perf_options *options, const struct column *column)
{
    switch (column->shown) {
    case CHECKED:
        return options->check;
    case BASELINE:
        return options->baseline_mpi;
    case FLOOR_BESIDE:
        return !options->no_floor && options->test != PERF_FLOOR;
    default:
        return column->get != get_mpi_per_op || options->baseline_mpi;
    }
}

static int is_shown(const struct perf_options *options, const struct column *column)
{
    if (!is_there(options, column))
        return 0;
    if (column->shown == IN_FLIGHT)
        return options->microbatches * options->depth > 1;
    return column->shown != RATE || options->test == PERF_RATE;
}

void perf_table_head(const struct perf_options *options)
{
    const char *comma = "";

    if (options->csv) {
        for (int i = 0; i < N_COLUMNS; i++, comma = ",")
            printf("%s%s", comma, columns[i].csv);
        printf("\n");
        return;
    }
    for (int i = 0; i < N_COLUMNS; i++) {
        if (is_shown(options, &columns[i]))
            printf("%*s", columns[i].width, columns[i].head);
    }
    printf("\n");
    for (int i = 0; i < N_COLUMNS; i++) {
        if (is_shown(options, &columns[i]))
            printf("%*s", columns[i].width, columns[i].unit);
    }
    printf("\n");
    fflush(stdout);
}

void perf_table_row(const struct perf_options *options, const struct perf_result *result)
{
    const char *comma = "";

    for (int i = 0; i < N_COLUMNS; i++, comma = ",") {
        const struct column *column = &columns[i];

        if (options->csv) {
            printf("%s", comma);
            if (is_there(options, column))
                printf("%.*f", column->digits, column->get(result));
        } else if (is_shown(options, column)) {
            printf(" %*.*f", column->width - 1, column->digits, column->get(result));
        }
    }
    printf("\n");
    fflush(stdout);
}
