/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_perf: latency, rate and bandwidth of push and pull, compared with MPI and a bare loop. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "answers.h"
#include "batch.h"
#include "clock.h"
#include "fail.h"
#include "gpu/gpu.h"
#include "html.h"
#include "job.h"
#include "links.h"
#include "meet.h"
#include "options.h"
#include "options_meet.h"
#include "place.h"
#include "progress.h"
#include "report.h"
#include "row.h"
#include "samples.h"
#include "startup.h"
#include "stop.h"
#include "trace.h"
#include "trace_cost.h"

/* What the command line gave. */
struct command {
    struct perf_options options;
    struct perf_batch batch;          /* of --batch */
    int n_tests;                      /* 1 without */
    const struct perf_options *tests; /* the batch's, or the options themselves */
    int rc;                           /* -1: unreadable; fail.h has the sentence */
};

/* Deadline of the library's waits unless one is given, s. */
enum { LIBRARY_WAIT_S = 10 };

/* One process's part in the run. */
struct run {
    struct perf_job *job;
    const struct perf_options *options; /* of the current test */
    struct perf_place place;
    struct perf_trace trace;
    struct perf_gpu *gpu; /* of --mem cuda */
    FILE *json_file;      /* rank 0, on request */
    int json_is_file;     /* and not a pipe, which can be written only once */
    json_t *json;
    json_t *json_head; /* what its rows have in common */
    uint64_t wrong_bytes;
    int exit_code; /* of a failure */
};

static int open_json(struct run *run, const char *name)
{
    struct stat status;

    run->json = json_array();
    run->json_file = fopen(name, "we");
    if (run->json_file == NULL)
        return perf_fail("%s: %s", name, strerror(errno));
    run->json_is_file = fstat(fileno(run->json_file), &status) == 0 && S_ISREG(status.st_mode);
    return run->json != NULL ? 0 : perf_fail("out of memory");
}

/* Whether both are open and the same file, under any names: devices and pipes may be shared. */
static int is_same(FILE *a, FILE *b)
{
    struct stat of_a, of_b;

    return a != NULL && b != NULL && fstat(fileno(a), &of_a) == 0 && fstat(fileno(b), &of_b) == 0 &&
           S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* Files are opened before anything is measured, so that an unwritable name is found early. */
static int open_files(struct run *run)
{
    const struct perf_options *options = run->options;
    int rank = run->job->channel.rank;
    FILE *samples = NULL;

    if (options->output.trace_file != NULL &&
        perf_trace_open(&run->trace, options->output.trace_file, rank) != 0)
        return -1;
    if (rank != 0)
        return 0;
    if (options->output.report_file != NULL && perf_html_ask(options->output.report_file) != 0)
        return -1;
    if (options->output.samples_file != NULL &&
        perf_samples_open(options->output.samples_file, &samples) != 0)
        return -1;
    if (options->output.json_file != NULL && open_json(run, options->output.json_file) != 0)
        return -1;
    if (is_same(run->json_file, run->trace.file) || is_same(run->json_file, samples) ||
        is_same(run->trace.file, samples))
        return perf_fail("two of --json, --samples and --trace name the same file");
    return 0;
}

/* Write all rows so far, over the previous ones. */
static int write_json(struct run *run)
{
    int failed = run->json_is_file && fseeko(run->json_file, 0, SEEK_SET) != 0;

    failed |= json_dumpf(run->json, run->json_file, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0;
    failed |= fputc('\n', run->json_file) == EOF;
    failed |= fflush(run->json_file) != 0;
    return failed ? perf_fail("%s: could not be written whole", run->options->output.json_file) : 0;
}

/* Measured rows are in the file even if a later one ends the process: all ranks exit when one is
 * lost. A write failure is reported at the end. */
static void add_json(struct run *run, json_t *row)
{
    json_array_append_new(run->json, row);
    if (run->json_is_file)
        (void)write_json(run);
}

static int close_files(struct run *run)
{
    int rc = perf_trace_close(&run->trace);

    if (perf_samples_close() != 0)
        rc = -1;
    if (run->json_file != NULL) {
        if (write_json(run) != 0)
            rc = -1;
        if (fclose(run->json_file) != 0)
            rc = perf_fail("%s: %s", run->options->output.json_file, strerror(errno));
    }
    json_decref(run->json);
    json_decref(run->json_head);
    return rc;
}

static int run_startup(struct run *run)
{
    struct perf_startup startup, few = {.mpi_init_us = -1.0};

    if (perf_startup_measure(run->job, run->options, &startup, &few) != 0 ||
        perf_place_open(run->job, run->options, &run->place, &run->exit_code) != 0)
        return -1;
    if (run->job->channel.rank != 0)
        return 0;
    perf_report_begin(run->job, run->options, &run->place, NULL);
    perf_startup_print(run->options, &startup, &few);
    if (run->json_file != NULL)
        add_json(run, perf_startup_json(run->options, &run->place, &startup, &few));
    return 0;
}

/* Measure one line of the table: @a line counts the lines of all rows, which --load doubles. */
static int run_line(struct run *run, int line, struct perf_result *result_p)
{
    const struct perf_options *options = run->options;
    struct perf_trace *trace = options->output.trace_file != NULL ? &run->trace : NULL;

    if (run->gpu == NULL)
        return perf_row_run(run->job, options, &run->place, line, trace, result_p);
    return options->cuda.load ? perf_gpu_row_run(run->gpu, line / 2, line % 2, result_p)
                              : perf_gpu_row_run(run->gpu, line, 0, result_p);
}

/* Measure every row once. @a start_ns is when the first of all began. *stop_p: end --forever. */
static int run_table(struct run *run, int64_t start_ns, int *stop_p)
{
    const struct perf_options *options = run->options;

    for (int line = 0; line < options->n_rows * (1 + options->cuda.load) && !*stop_p; line++) {
        struct perf_result result = {0};

        if (run_line(run, line, &result) != 0) {
            perf_result_free(&result);
            return -1;
        }
        run->wrong_bytes += result.wrong_bytes;
        result.time_s = (double)(perf_now_ns() - start_ns) / 1e9;
        if (run->job->channel.rank == 0)
            perf_table_row(options, &result);
        if (run->json_file != NULL)
            add_json(run, perf_json_row(options, &result, run->json_head));
        perf_result_free(&result);
        if (options->run.forever && perf_stop_agree(run->job, stop_p) != 0)
            return -1;
    }
    return 0;
}

static int run_rows(struct run *run)
{
    const struct perf_options *options = run->options;
    int rank = run->job->channel.rank;
    int64_t start_ns = perf_now_ns();
    int stop = 0;

    if (perf_place_open(run->job, options, &run->place, &run->exit_code) != 0)
        return -1;
    run->exit_code = PERF_EXIT_FAILED;
    if (options->cuda.mem && perf_gpu_open(run->job, options, &run->place, &run->gpu) != 0)
        return -1;
    if (rank == 0)
        perf_report_begin(run->job, options, &run->place, run->gpu);
    if (run->json_file != NULL && run->json_head == NULL)
        run->json_head = perf_json_head(run->job, options, &run->place);
    if (options->trace_cost)
        return perf_trace_cost_run(run->job, options, &run->place);
    if (options->answers > 0)
        return perf_answers_run(run->job, options, &run->place);
    if (rank == 0)
        perf_table_head(options);
    do {
        if (run_table(run, start_ns, &stop) != 0)
            return -1;
    } while (options->run.forever && !stop);
    return 0;
}

/* Run all tests, one after the other. */
static int run_tests(struct run *run, int n, const struct perf_options *tests)
{
    int rc = 0;

    for (int i = 0; i < n && rc == 0; i++) {
        run->options = &tests[i];
        run->job->wait_s = perf_options_wait_s(run->options);
        if (run->job->wait_s <= 0.0)
            run->job->wait_s = LIBRARY_WAIT_S;
        if (i > 0 && run->job->channel.rank == 0)
            printf("\n");
        rc = run->options->startup ? run_startup(run) : run_rows(run);
        perf_gpu_close(run->gpu);
        run->gpu = NULL;
        perf_place_close(&run->place);
    }
    return rc;
}

/* The printed output is the result: a full disk must not pass for a successful run. */
static int check_output(void)
{
    if (fflush(stdout) != 0)
        return perf_fail("standard output: %s", strerror(errno));
    return ferror(stdout) ? perf_fail("standard output: could not be written whole") : 0;
}

/* The body of each process; all return the same. */
static int run_job(struct perf_job *job, void *arg)
{
    const struct command *command = arg;
    struct run run = {.job = job, .options = command->tests, .exit_code = PERF_EXIT_FAILED};
    int first = job->channel.rank == 0;
    int exit_code;

    perf_clock_init();
    if (first)
        perf_progress_begin();
    if (perf_options_meet(job, command->n_tests, command->tests, command->rc) != 0 ||
        perf_job_agree(job, open_files(&run)) != 0)
        exit_code = PERF_EXIT_USAGE;
    else if (run_tests(&run, command->n_tests, command->tests) == 0)
        exit_code = PERF_EXIT_OK;
    else
        exit_code = run.exit_code;
    if (exit_code != PERF_EXIT_OK && first)
        fprintf(stderr, "stepaf_perf: %s\n", perf_fail_text());
    if (close_files(&run) != 0 && exit_code == PERF_EXIT_OK) {
        fprintf(stderr, "stepaf_perf: %s\n", perf_fail_text());
        exit_code = PERF_EXIT_FAILED;
    }
    if (first && exit_code == PERF_EXIT_OK && run.options->output.report_file != NULL &&
        perf_html_make(run.options->output.json_file, run.options->output.report_file) != 0) {
        fprintf(stderr, "stepaf_perf: %s\n", perf_fail_text());
        exit_code = PERF_EXIT_FAILED;
    }
    if (check_output() != 0 && exit_code == PERF_EXIT_OK) {
        fprintf(stderr, "stepaf_perf: %s\n", perf_fail_text());
        exit_code = PERF_EXIT_FAILED;
    }
    if (run.wrong_bytes > 0) {
        if (first)
            fprintf(stderr, "stepaf_perf: %llu bytes were wrong\n",
                    (unsigned long long)run.wrong_bytes);
        exit_code = PERF_EXIT_FAILED;
    }
    return exit_code;
}

static int tell(int exit_code)
{
    fprintf(stderr, "stepaf_perf: %s\n", perf_fail_text());
    return exit_code;
}

/* The tests of the command line or of its file. */
static int read_command(int argc, char **argv, int launched, int rank, struct command *command)
{
    struct perf_options *options = &command->options;

    command->n_tests = 1;
    command->tests = options;
    if (perf_options_parse(argc, argv, launched, rank, options) != 0)
        return -1;
    if (options->job.batch_file == NULL)
        return 0;
    if (perf_batch_read(options->job.batch_file, argc, argv, &command->batch) != 0)
        return -1;
    command->n_tests = command->batch.n;
    command->tests = command->batch.tests;
    return 0;
}

/* Check requirements before any process is forked. */
static int ask(struct command *command)
{
    if (perf_links_ask(&command->options) != 0)
        return -1;
    for (int i = 0; i < command->batch.n; i++)
        command->batch.tests[i].job.transport_before = command->options.job.transport_before;
    for (int i = 0; i < command->n_tests; i++) {
        if (command->tests[i].cuda.mem && perf_gpu_ask(&command->tests[i]) != 0)
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct command command;
    struct perf_options *options = &command.options;
    int launched = perf_launched();
    int rank = launched ? perf_launched_rank() : 0;
    int meets;

    command.rc = read_command(argc, argv, launched, rank, &command);
    if (command.rc != 0 && !launched)
        return tell(PERF_EXIT_USAGE);
    if (command.rc != 0)
        return perf_job_run_mpi(&argc, &argv, run_job, &command);
    if (launched &&
        (options->job.procs > 0 || options->job.listen > 0 || options->job.connect != NULL)) {
        perf_fail_set(
            "--procs, --listen and --connect make a job of their own: leave them out under a "
            "launcher");
        return rank == 0 ? tell(PERF_EXIT_USAGE) : PERF_EXIT_USAGE;
    }
    if (ask(&command) != 0)
        return tell(PERF_EXIT_FAILED);
    if (options->run.forever)
        perf_stop_on_signals();
    if (options->job.procs > 0)
        return perf_job_run_fork((int)options->job.procs, run_job, &command);
    if (launched)
        return perf_job_run_mpi(&argc, &argv, run_job, &command);
    meets = perf_meet_ask(options);
    if (meets == 0)
        perf_fail_set("no launcher has started this: run 'mpirun -n 4 stepaf_perf ...', or add "
                      "--procs 4 to fork processes here, or --listen, and --connect elsewhere");
    if (meets > 0 && options->job.connect != NULL) {
        printf("# the rank that listens prints the table\n");
        fflush(stdout);
    }
    return meets > 0 ? perf_job_run_meet(run_job, &command) : tell(PERF_EXIT_USAGE);
}
