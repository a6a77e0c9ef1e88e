/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <stdio.h>

/* Whether a column is shown in text; CSV has all. */
enum shown {
    ALWAYS,
    FOREVER,
    IN_FLIGHT,
    RATE,
    CHECKED,
    BASELINE,
    BASELINE_IN_FLIGHT,
    ON_GPU,
    HALVES,
    NCCL,
    NCCL_IN_FLIGHT,
    LOADED,
    FLOOR_BESIDE,
    FLOOR_IN_FLIGHT,
    FLOOR_RATE,
    FLOOR_ANY,
    COPIES,
    WIRE,
    THREAD
};

/* One column: heads, digits after the point, and where its number or its word comes from. */
struct column {
    const char *head, *unit, *csv;
    int width, digits;
    enum shown shown;
    double (*get)(const struct perf_result *r);
    const char *(*word)(const struct perf_result *r);
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
GETTER(time, r->time_s)
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
GETTER(posts, r->ops_per_s * r->posts_per_op)
GETTER(wrong, r->wrong_bytes)
GETTER(checked, r->checked_ops)
GETTER(mpi, r->stats[PERF_MPI].p50)
GETTER(mpi_ratio, ratio(of(r)->p50, r->stats[PERF_MPI].p50))
GETTER(mpi_per_op, r->us_per_op[PERF_MPI])
GETTER(floor, r->stats[PERF_FLOOR_LOOP].p50)
GETTER(floor_ratio, ratio(of(r)->p50, r->stats[PERF_FLOOR_LOOP].p50))
GETTER(floor_gb, perf_result_gb_per_s(r, PERF_FLOOR_LOOP))
GETTER(floor_posts, perf_result_ops_per_s(r, PERF_FLOOR_LOOP) * r->posts_per_op)
GETTER(rate_ratio, ratio(r->ops_per_s, perf_result_ops_per_s(r, PERF_FLOOR_LOOP)))
GETTER(gb_ratio, ratio(r->gb_per_s, perf_result_gb_per_s(r, PERF_FLOOR_LOOP)))
GETTER(copies, r->copies_us)
GETTER(copies_ratio, ratio(of(r)->p50, r->copies_us))
GETTER(wire, r->wire_us)
GETTER(wire_ratio, ratio(of(r)->p50, r->wire_us))
GETTER(half, of(r)->p50 / 2.0)
GETTER(host, r->cpu.host_us[PERF_OURS])
GETTER(thread, r->cpu.thread_us)
GETTER(nccl, r->stats[PERF_NCCL].p50)
GETTER(nccl_p99, r->stats[PERF_NCCL].p99)
GETTER(nccl_ratio, ratio(of(r)->p50, r->stats[PERF_NCCL].p50))
GETTER(nccl_p99_ratio, ratio(of(r)->p99, r->stats[PERF_NCCL].p99))
GETTER(nccl_host, r->cpu.host_us[PERF_NCCL])
GETTER(nccl_per_op, r->us_per_op[PERF_NCCL])
GETTER(nccl_gb, perf_result_gb_per_s(r, PERF_NCCL))
#undef GETTER

static const char *get_load(const struct perf_result *r)
{
    return r->loaded ? "full" : "-";
}

static const char *get_transport(const struct perf_result *r)
{
    return r->transport;
}

static const char *get_floor_kind(const struct perf_result *r)
{
    return r->has[PERF_FLOOR_LOOP] ? r->floor_word : "-";
}

#define NUMBER(head_, unit_, csv_, width_, digits_, shown_, from_)     \
    {                                                                  \
        head_, unit_, csv_, width_, digits_, shown_, get_##from_, NULL \
    }
#define WORD(head_, unit_, csv_, width_, shown_, from_)          \
    {                                                            \
        head_, unit_, csv_, width_, 0, shown_, NULL, get_##from_ \
    }

static const struct column columns[] = {
    NUMBER("#bytes", "push", "push_bytes", 11, 0, ALWAYS, push),
    NUMBER("#bytes", "pull", "pull_bytes", 11, 0, ALWAYS, pull),
    NUMBER("#repetitions", "", "repetitions", 13, 0, ALWAYS, reps),
    NUMBER("t_min", "[usec]", "min_us", 10, 3, ALWAYS, min),
    NUMBER("t_p50", "[usec]", "p50_us", 10, 3, ALWAYS, p50),
    NUMBER("t_p99", "[usec]", "p99_us", 10, 3, ALWAYS, p99),
    NUMBER("t_p99.9", "[usec]", "p999_us", 10, 3, ALWAYS, p999),
    NUMBER("t_max", "[usec]", "max_us", 10, 3, ALWAYS, max),
    NUMBER("t_avg", "[usec]", "avg_us", 10, 3, ALWAYS, avg),
    NUMBER("stddev", "[%]", "stddev_pct", 8, 1, ALWAYS, stddev),
    NUMBER("GB/s", "", "gb_per_s", 9, 3, ALWAYS, gb),
    NUMBER("t/op", "[usec]", "us_per_op", 10, 3, IN_FLIGHT, per_op),
    NUMBER("ops/s", "", "ops_per_s", 11, 0, RATE, rate),
    NUMBER("posts/s", "", "posts_per_s", 11, 0, RATE, posts),
    NUMBER("wrong", "bytes", "wrong_bytes", 7, 0, CHECKED, wrong),
    NUMBER("of #ops", "", "checked_ops", 9, 0, CHECKED, checked),
    NUMBER("mpi p50", "[usec]", "mpi_p50_us", 10, 3, BASELINE, mpi),
    NUMBER("ours", "/ mpi", "ours_to_mpi", 7, 2, BASELINE, mpi_ratio),
    NUMBER("mpi t/op", "[usec]", "mpi_us_per_op", 10, 3, BASELINE_IN_FLIGHT, mpi_per_op),
    NUMBER("t_p50", "/ 2", "half_us", 9, 3, HALVES, half),
    NUMBER("host", "[usec]", "host_us", 8, 3, ON_GPU, host),
    NUMBER("thread", "[usec]", "thread_us", 9, 3, THREAD, thread),
    NUMBER("nccl p50", "[usec]", "nccl_p50_us", 10, 3, NCCL, nccl),
    NUMBER("ours", "/ nccl", "ours_to_nccl", 7, 2, NCCL, nccl_ratio),
    NUMBER("nccl p99", "[usec]", "nccl_p99_us", 10, 3, NCCL, nccl_p99),
    NUMBER("p99", "/ nccl", "ours_to_nccl_p99", 7, 2, NCCL, nccl_p99_ratio),
    NUMBER("nccl t/op", "[usec]", "nccl_us_per_op", 10, 3, NCCL_IN_FLIGHT, nccl_per_op),
    NUMBER("nccl", "GB/s", "nccl_gb_per_s", 9, 3, NCCL, nccl_gb),
    NUMBER("nccl", "host", "nccl_host_us", 8, 3, NCCL, nccl_host),
    NUMBER("floor p50", "[usec]", "floor_p50_us", 10, 3, FLOOR_BESIDE, floor),
    NUMBER("ours", "/ floor", "ours_to_floor", 8, 2, FLOOR_BESIDE, floor_ratio),
    NUMBER("floor", "GB/s", "floor_gb_per_s", 9, 3, FLOOR_IN_FLIGHT, floor_gb),
    NUMBER("GB/s", "/ floor", "gb_per_s_to_floor", 8, 2, FLOOR_IN_FLIGHT, gb_ratio),
    NUMBER("copies", "[usec]", "copies_us", 10, 3, COPIES, copies),
    NUMBER("ours", "/ copies", "ours_to_copies", 9, 2, COPIES, copies_ratio),
    NUMBER("tcp", "[usec]", "wire_us", 10, 3, WIRE, wire),
    NUMBER("ours", "/ tcp", "ours_to_wire", 8, 2, WIRE, wire_ratio),
    NUMBER("floor", "posts/s", "floor_posts_per_s", 11, 0, FLOOR_RATE, floor_posts),
    NUMBER("posts", "/ floor", "posts_to_floor", 8, 2, FLOOR_RATE, rate_ratio),
    WORD("load", "", "load", 6, LOADED, load),
    WORD("floor", "", "floor", 10, FLOOR_ANY, floor_kind),
    WORD("transport", "", "transport", 10, ALWAYS, transport),
    NUMBER("time", "[s]", "time_s", 9, 1, FOREVER, time),
};

enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* Whether the run has such numbers at all. */
static int is_there(const struct perf_options *options, const struct column *column)
{
    switch (column->shown) {
    case FOREVER:
        return options->run.forever;
    case CHECKED:
        return options->check;
    case BASELINE:
    case BASELINE_IN_FLIGHT:
        return options->baseline_mpi;
    case ON_GPU:
    case THREAD:
        return options->cuda.mem;
    case HALVES:
        return options->cuda.mem && options->test == PERF_AF;
    case NCCL:
    case NCCL_IN_FLIGHT:
        return options->baseline_nccl != PERF_NCCL_NONE;
    case LOADED:
        return options->cuda.load;
    case FLOOR_BESIDE:
    case FLOOR_IN_FLIGHT:
    case FLOOR_RATE:
        return !options->no_floor && options->test != PERF_FLOOR;
    case FLOOR_ANY:
        return !options->no_floor;
    case COPIES:
    case WIRE:
        return !options->no_floor && options->cuda.mem;
    default:
        return 1;
    }
}

static int is_shown(const struct perf_options *options, const struct column *column)
{
    if (!is_there(options, column))
        return 0;
    switch (column->shown) {
    case IN_FLIGHT:
    case BASELINE_IN_FLIGHT:
    case NCCL_IN_FLIGHT:
    case FLOOR_IN_FLIGHT:
        return options->microbatches * options->depth > 1;
    case RATE:
    case FLOOR_RATE:
        return options->test == PERF_RATE;
    default:
        return 1;
    }
}

void perf_table_head(const struct perf_options *options)
{
    const char *comma = "";

    if (options->output.csv) {
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

/* Whether the row has this number, where the run may have it. */
static int has_cell(const struct column *column, const struct perf_result *result)
{
    switch (column->shown) {
    case FLOOR_BESIDE:
    case FLOOR_IN_FLIGHT:
    case FLOOR_RATE:
        return result->has[PERF_FLOOR_LOOP];
    case COPIES:
        return result->copies_us > 0.0;
    case WIRE:
        return result->wire_us > 0.0;
    case THREAD:
        return result->cpu.thread_us > 0.0;
    default:
        return 1;
    }
}

/* @a width 0: as narrow as possible, without a space before it. */
static void print_cell(const struct column *column, int width, const struct perf_result *result)
{
    const char *space = width > 0 ? " " : "";

    if (!has_cell(column, result))
        printf("%s%*s", space, width, width > 0 ? "-" : "");
    else if (column->word != NULL)
        printf("%s%*s", space, width, column->word(result));
    else
        printf("%s%*.*f", space, width, column->digits, column->get(result));
}

void perf_table_row(const struct perf_options *options, const struct perf_result *result)
{
    const char *comma = "";

    for (int i = 0; i < N_COLUMNS; i++, comma = ",") {
        const struct column *column = &columns[i];

        if (options->output.csv)
            printf("%s", comma);
        if (options->output.csv ? is_there(options, column) : is_shown(options, column))
            print_cell(column, options->output.csv ? 0 : column->width - 1, result);
    }
    printf("\n");
    fflush(stdout);
}
