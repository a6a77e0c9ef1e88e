/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the table from the size and shape options, and conflicts of options. */
#include "options_rows.h"

#include <stdio.h>
#include <string.h>

#include "fail.h"

const char *perf_test_name(enum perf_test test)
{
    static const char *const names[] = {
#define TEST_NAME(value_, name_, text_) name_,
        PERF_TEST_MAP(TEST_NAME)
#undef TEST_NAME
    };

    return names[test];
}

const char *perf_test_text(enum perf_test test)
{
    static const char *const texts[] = {
#define TEST_TEXT(value_, name_, text_) text_,
        PERF_TEST_MAP(TEST_TEXT)
#undef TEST_TEXT
    };

    return texts[test];
}

static const struct perf_sizes *or_else(const struct perf_sizes *first,
                                        const struct perf_sizes *second)
{
    return first->n > 0 ? first : second;
}

/* Combine two lists; a list of a single size goes with every size of the other. */
static int rows_of_sizes(const struct perf_sizes *push, const struct perf_sizes *pull,
                         struct perf_options *options)
{
    int n = push->n > pull->n ? push->n : pull->n;

    if (push->n != pull->n && push->n != 1 && pull->n != 1)
        return perf_fail("--push-size has %d sizes and --pull-size %d: give lists of equal length, "
                         "or a single size in one of them",
                         push->n, pull->n);
    for (int i = 0; i < n; i++) {
        options->rows[i].push_bytes = push->bytes[push->n == 1 ? 0 : i];
        options->rows[i].pull_bytes = pull->bytes[pull->n == 1 ? 0 : i];
    }
    options->n_rows = n;
    return 0;
}

static int rows_of_shapes(const struct perf_row_input *input, struct perf_options *options)
{
    if (input->size.n > 0 || input->push_size.n > 0 || input->pull_size.n > 0)
        return perf_fail("--shape and --size exclude each other");
    for (int i = 0; i < input->shapes.n; i++) {
        size_t bytes;

        if (perf_shape_bytes(&input->shapes.shape[i], options->push_dtype, &bytes) != 0 ||
            perf_shape_bytes(&input->shapes.shape[i], options->pull_dtype, &bytes) != 0)
            return -1;
        if (options->route_topk > PERF_MAX_BYTES / 4 / (size_t)input->shapes.shape[i].dims[0])
            return perf_fail("--route-topk %llu makes the routing tensors larger than 4294967295 "
                             "bytes",
                             (unsigned long long)options->route_topk);
        options->rows[i].shape = input->shapes.shape[i];
    }
    options->n_rows = input->shapes.n;
    return 0;
}

int perf_rows_make(const struct perf_row_input *input, struct perf_options *options)
{
    static const struct perf_sizes small = {.n = 1, .bytes = {8}};
    struct perf_sizes sweep;
    const struct perf_sizes *fallback = options->test == PERF_RATE ? &small : &sweep;

    if (input->shapes.n > 0)
        return rows_of_shapes(input, options);
    if (options->route_topk > 0 || input->dtype_given)
        return perf_fail("--push-dtype, --pull-dtype and --route-topk require --shape");
    if (perf_sizes_parse("8:8M", &sweep) != 0)
        return -1;
    fallback = or_else(&input->size, fallback);
    return rows_of_sizes(or_else(&input->push_size, fallback), or_else(&input->pull_size, fallback),
                         options);
}

/* Check what tensors in GPU memory exclude, and what requires them. */
static int agree_on_gpu(const struct perf_options *options)
{
    if (!options->cuda.mem) {
        if (options->cuda.graph_ops > 0 || options->cuda.load ||
            options->baseline_nccl != PERF_NCCL_NONE)
            return perf_fail("--graph, --load and --baseline nccl require --mem cuda");
        return 0;
    }
    if (options->test == PERF_PUSH_THEN_PULL || options->test == PERF_FLOOR)
        return perf_fail("--mem cuda has no test %s", perf_test_name(options->test));
    if (options->baseline_mpi || options->scatter || options->release_apart)
        return perf_fail("--mem cuda excludes --baseline mpi, --scatter and --release apart");
    if (!options->recv_each && options->check)
        return perf_fail("--mem cuda --recv any cannot be checked: the host does not know the "
                         "sender of a batch");
    if (options->output.trace_file != NULL || options->trace_cost || options->startup)
        return perf_fail("--mem cuda excludes --trace, --trace-cost and --startup");
    if (options->microbatches > 16)
        return perf_fail("--mem cuda has at most 16 microbatches: each is on a stream of its own");
    return 0;
}

/* Endless output cannot be written completely. */
static int agree_on_forever(const struct perf_options *options)
{
    if (options->run.forever &&
        (options->startup || options->trace_cost || options->answers > 0 ||
         options->output.json_file != NULL || options->output.samples_file != NULL ||
         options->output.trace_file != NULL))
        return perf_fail(
            "--forever excludes --startup, --trace-cost, --answers, --json, --samples and --trace");
    if (options->run.forever && options->test == PERF_FLOOR)
        return perf_fail("--forever measures the library alone, which the test floor does not use");
    if (options->job.batch_file != NULL &&
        (options->run.forever || options->output.samples_file != NULL ||
         options->output.trace_file != NULL))
        return perf_fail("--batch excludes --forever, --samples and --trace");
    return 0;
}

/* An HTML file is made from a table's rows. */
static int agree_on_report(const struct perf_options *options)
{
    if (options->output.report_file == NULL)
        return 0;
    if (options->startup || options->trace_cost || options->answers > 0 || options->run.forever)
        return perf_fail("--report excludes --startup, --trace-cost, --answers and --forever");
    return 0;
}

int perf_options_agree(const struct perf_options *options)
{
    if (agree_on_gpu(options) != 0 || agree_on_forever(options) != 0 ||
        agree_on_report(options) != 0)
        return -1;
    if (options->microbatches * options->depth > 1024)
        return perf_fail("--microbatches times --depth is more than 1024 operations in flight");
    if (options->scatter && (options->test == PERF_PULL || options->test == PERF_PUSH_THEN_PULL))
        return perf_fail("--scatter requires a test whose operations push: not %s",
                         perf_test_name(options->test));
    if ((options->job.procs > 0) + (options->job.listen > 0) + (options->job.connect != NULL) > 1)
        return perf_fail("--procs, --listen and --connect exclude each other");
    if (options->baseline_mpi &&
        (options->job.procs > 0 || options->job.listen > 0 || options->job.connect != NULL))
        return perf_fail("--baseline mpi requires MPI: start with mpirun instead of --procs, "
                         "--listen and --connect");
    if (options->test == PERF_FLOOR &&
        (options->check || options->no_floor || options->output.trace_file != NULL ||
         options->trace_cost || options->startup))
        return perf_fail("the test floor does not use the library, and excludes --check, "
                         "--no-floor, --trace, --trace-cost and --startup");
    if (options->corrupt > 0 && !options->check)
        return perf_fail("--corrupt requires --check");
    if (options->trace_cost &&
        (options->startup || options->check || options->baseline_mpi ||
         options->output.json_file != NULL || options->output.trace_file != NULL))
        return perf_fail(
            "--trace-cost excludes --startup, --check, --baseline, --json and --trace");
    if (options->answers > 0 &&
        (options->test != PERF_AF || options->cuda.mem || options->scatter || options->recv_each ||
         options->release_apart || options->trace_cost || options->startup || options->check ||
         options->baseline_mpi || options->output.csv || options->output.json_file != NULL ||
         options->output.trace_file != NULL || options->output.samples_file != NULL))
        return perf_fail(
            "--answers is for the test af, without --mem cuda, --scatter, --recv each, "
            "--release apart, --trace-cost, --startup, --check, --baseline, --csv, "
            "--json, --samples and --trace");
    if ((options->output.csv || options->output.samples_file) &&
        (options->startup || options->trace_cost))
        return perf_fail("--startup and --trace-cost have no table for --csv, nor for --samples");
    if (options->startup &&
        (options->check || options->baseline_mpi || options->output.trace_file != NULL))
        return perf_fail("--startup excludes --check, --baseline and --trace");
    return 0;
}

static int agree_on_files(const struct perf_options *options)
{
    const char *const files[][2] = {{"--report", options->output.report_file},
                                    {"--json", options->output.json_file},
                                    {"--samples", options->output.samples_file},
                                    {"--trace", options->output.trace_file}};
    const int n = sizeof(files) / sizeof(files[0]);

    for (int i = 0; i < n; i++) {
        for (int j = i + 1; j < n; j++) {
            if (files[i][1] != NULL && files[j][1] != NULL && strcmp(files[i][1], files[j][1]) == 0)
                return perf_fail("%s and %s name the same file", files[i][0], files[j][0]);
        }
    }
    return 0;
}

int perf_options_name(struct perf_options *options)
{
    const char *report = options->output.report_file;
    size_t length = report != NULL ? strlen(report) : 0;
    char *name;

    if (report == NULL || options->output.json_file != NULL)
        return agree_on_files(options);
    if (length > 5 && strcmp(report + length - 5, ".html") == 0)
        length -= 5;
    if (asprintf(&name, "%.*s.json", (int)length, report) < 0)
        return perf_fail("out of memory");
    options->output.json_file = name;
    return agree_on_files(options);
}
