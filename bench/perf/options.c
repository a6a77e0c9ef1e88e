/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/version.h>

#include "fail.h"
#include "options_rows.h"
#include "options_table.h"

enum { MAX_ITERS = 100000000 };

#define MOST_WAIT_US 3.6e9 /* accepted by STEPAF_TIMEOUT_US */

static const char test_list[] =
#define TEST_LIST(value_, name_, text_) " " name_
    PERF_TEST_MAP(TEST_LIST);
#undef TEST_LIST

struct parse {
    struct perf_options *options;
    struct perf_row_input input;
    int failed; /* fail.h has the sentence */
    int test_given;
    int depth_given, recv_given;
    int stream_given;
    int keys_given, iters_given;
    const char *of_tests; /* an option that --startup does not have; NULL */
    int line_from;        /* the first word of a line of --batch, not of the command; 0: none */
};

/* Parse one of two words: the first gives 0, the second 1. */
static int parse_word(const char *text, const char *option, const char *zero, const char *one,
                      int *value_p)
{
    if (strcmp(text, zero) != 0 && strcmp(text, one) != 0)
        return perf_fail("%s '%s' is neither '%s' nor '%s'", option, text, zero, one);
    *value_p = strcmp(text, one) == 0;
    return 0;
}

static int parse_test(const char *text, struct parse *parse)
{
    if (parse->test_given)
        return perf_fail("a run has one test, but '%s' follows one", text);
    for (int i = 0; i < PERF_TEST_LAST; i++) {
        if (strcmp(perf_test_name((enum perf_test)i), text) == 0) {
            parse->options->test = (enum perf_test)i;
            parse->test_given = 1;
            return 0;
        }
    }
    return perf_fail("'%s' is not a test; the tests are%s", text, test_list);
}

static int parse_tensor_option(int key, const char *arg, struct parse *parse)
{
    struct perf_options *options = parse->options;
    struct perf_row_input *input = &parse->input;

    switch (key) {
    case KEY_SIZE:
        return perf_sizes_parse(arg, &input->size);
    case KEY_PUSH_SIZE:
        return perf_sizes_parse(arg, &input->push_size);
    case KEY_PULL_SIZE:
        return perf_sizes_parse(arg, &input->pull_size);
    case KEY_SHAPE:
        return perf_shapes_parse(arg, &input->shapes);
    case KEY_PUSH_DTYPE:
        input->dtype_given = 1;
        return perf_dtype_parse(arg, &options->push_dtype);
    case KEY_PULL_DTYPE:
        input->dtype_given = 1;
        return perf_dtype_parse(arg, &options->pull_dtype);
    case KEY_ROUTE_TOPK:
        return perf_number_parse(arg, "--route-topk", 1, 1024, &options->route_topk);
    case KEY_MEMORY:
        return parse_word(arg, "--memory", "lib", "user", &options->user_memory);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int parse_number_option(int key, const char *arg, struct parse *parse)
{
    struct perf_options *options = parse->options;
    uint64_t seconds;

    switch (key) {
    case KEY_PROCS:
        return perf_number_parse(arg, "--procs", 2, 1024, &options->job.procs);
    case KEY_LISTEN:
        return perf_number_parse(arg != NULL ? arg : "18516", "--listen", 1, 65535,
                                 &options->job.listen);
    case 'm':
        return perf_number_parse(arg, "--microbatches", 1, 256, &options->microbatches);
    case 'd':
        parse->depth_given = 1;
        return perf_number_parse(arg, "--depth", 1, STEPAF_MAX_DEPTH, &options->depth);
    case 'i':
        parse->iters_given = 1;
        return perf_number_parse(arg, "--iters", 1, MAX_ITERS, &options->run.iters);
    case 'w':
        return perf_number_parse(arg, "--warmup", 0, 100000000, &options->run.warmup);
    case KEY_ROUNDS:
        return perf_number_parse(arg, "--rounds", 1, 10000, &options->run.rounds);
    case KEY_MAX_TIME:
        return perf_number_parse(arg, "--max-time", 0, 86400, &options->run.max_time_s);
    case KEY_ANSWERS:
        return perf_number_parse(arg, "--answers", 1, 1024, &options->answers);
    case KEY_CORRUPT:
        return perf_number_parse(arg, "--corrupt", 1, 1000000000, &options->corrupt);
    case KEY_KEYS:
        parse->keys_given = 1;
        return perf_number_parse(arg, "--keys", 1, 65536, &options->keys);
    case KEY_TIMEOUT:
        if (perf_number_parse(arg, "--timeout", 1, 3600, &seconds) != 0)
            return -1;
        options->run.timeout_us = (int64_t)seconds * 1000000;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int parse_baseline(const char *arg, struct perf_options *options)
{
    if (strcmp(arg, "mpi") == 0)
        options->baseline_mpi = 1;
    else if (strcmp(arg, "nccl") == 0)
        options->baseline_nccl = PERF_NCCL_PLAIN;
    else if (strcmp(arg, "nccl-fused") == 0)
        options->baseline_nccl = PERF_NCCL_FUSED;
    else
        return perf_fail("--baseline '%s' is not 'mpi', 'nccl' or 'nccl-fused'", arg);
    return 0;
}

static int parse_gpu_option(int key, const char *arg, struct parse *parse)
{
    struct perf_options *options = parse->options;

    switch (key) {
    case KEY_MEM:
        return parse_word(arg, "--mem", "host", "cuda", &options->cuda.mem);
    case KEY_STREAM:
        parse->stream_given = 1;
        return perf_number_parse(arg != NULL ? arg : "1", "--stream", 1, 64,
                                 &options->cuda.stream_ops);
    case KEY_GRAPH:
        return perf_number_parse(arg != NULL ? arg : "32", "--graph", 1, 4096,
                                 &options->cuda.graph_ops);
    case KEY_LOAD:
        options->cuda.load = 1;
        return perf_number_parse(arg != NULL ? arg : "0", "--load", 0, 1024,
                                 &options->cuda.spare_sms);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int parse_file(const char *text, const char *option, const char **file_p)
{
    if (text[0] == '\0')
        return perf_fail("%s '' names no file", option);
    *file_p = text;
    return 0;
}

static int parse_plain_option(int key, const char *arg, struct parse *parse)
{
    struct perf_options *options = parse->options;

    switch (key) {
    case KEY_SPLIT:
        options->job.split = arg;
        return 0;
    case KEY_TRANSPORT:
        if (arg[0] == '\0')
            return perf_fail("--transport '' names no transport; 'stepaf_info -t' lists them");
        options->job.transport = arg;
        return 0;
    case KEY_CONNECT:
        if (arg[0] == '\0')
            return perf_fail("--connect '' names no host");
        options->job.connect = arg;
        return 0;
    case KEY_RECV:
        parse->recv_given = 1;
        return parse_word(arg, "--recv", "any", "each", &options->recv_each);
    case KEY_RELEASE:
        return parse_word(arg, "--release", "with", "apart", &options->release_apart);
    case KEY_BASELINE:
        return parse_baseline(arg, options);
    case KEY_TRACE:
        return parse_file(arg, "--trace", &options->output.trace_file);
    case KEY_JSON:
        return parse_file(arg, "--json", &options->output.json_file);
    case KEY_SAMPLES:
        return parse_file(arg, "--samples", &options->output.samples_file);
    case KEY_REPORT:
        return parse_file(arg, "--report", &options->output.report_file);
    case KEY_SCATTER:
        options->scatter = 1;
        return 0;
    case KEY_CHECK:
        options->check = 1;
        return 0;
    case KEY_NO_FLOOR:
        options->no_floor = 1;
        return 0;
    case KEY_TRACE_COST:
        options->trace_cost = 1;
        return 0;
    case KEY_STARTUP:
        options->startup = 1;
        return 0;
    case KEY_CSV:
        options->output.csv = 1;
        return 0;
    case KEY_FOREVER:
        options->run.forever = 1;
        return 0;
    case KEY_BATCH:
        return parse_file(arg, "--batch", &options->job.batch_file);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Reject options of all tests of a run in a line of --batch. Returns 0, or -1 with a sentence. */
static int check_line_option(int key)
{
    static const int keys[] = {KEY_PROCS,     KEY_LISTEN, KEY_CONNECT, KEY_SPLIT,
                               KEY_TRANSPORT, KEY_TRACE,  KEY_CSV,     KEY_JSON,
                               KEY_SAMPLES,   KEY_REPORT, KEY_FOREVER, KEY_BATCH};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        for (int o = 0; keys[i] == key && perf_option_table[o].doc != NULL; o++) {
            if (perf_option_table[o].key == key)
                return perf_fail("--%s is for the command line", perf_option_table[o].name);
        }
    }
    return 0;
}

/* Handle an option of tensors and operations, which --startup does not have. */
static void note_of_tests(int key, struct parse *parse)
{
    int group = 0;

    for (int o = 0; perf_option_table[o].doc != NULL; o++) {
        if (perf_option_table[o].group > 0)
            group = perf_option_table[o].group;
        if (perf_option_table[o].key != key || perf_option_table[o].name == NULL)
            continue;
        if ((group >= GROUP_TENSORS && group <= GROUP_GPU) || key == KEY_NO_FLOOR)
            parse->of_tests = perf_option_table[o].name;
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    static int (*const parsers[])(int, const char *, struct parse *) = {
        parse_tensor_option, parse_number_option, parse_gpu_option, parse_plain_option};
    struct parse *parse = state->input;
    int rc = ARGP_ERR_UNKNOWN;

    if (key == ARGP_KEY_ERROR) {
        if (!parse->failed)
            perf_fail_set("%s: unknown, ambiguous or incomplete; see --help",
                          state->argv[state->next > 1 ? state->next - 1 : 0]);
        return 0;
    }
    if (parse->line_from > 0 && state->next > parse->line_from && check_line_option(key) != 0)
        rc = -1;
    else if (key == ARGP_KEY_ARG)
        rc = parse_test(arg, parse);
    for (size_t i = 0; i < sizeof(parsers) / sizeof(parsers[0]) && rc == ARGP_ERR_UNKNOWN; i++)
        rc = parsers[i](key, arg, parse);
    if (parse->line_from == 0 || state->next > parse->line_from)
        note_of_tests(key, parse);
    parse->failed |= rc == -1;
    return rc == -1 ? EINVAL : rc;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "stepaf_perf %s\n", stepaf_version());
}

/* Long options may be abbreviated, as in getopt. */
static int asks_for_help(int argc, char **argv)
{
    static const char *const words[] = {"--help", "--usage", "--version"};

    for (int i = 1; i < argc; i++) {
        size_t length = strlen(argv[i]);

        if (strcmp(argv[i], "-?") == 0 || strcmp(argv[i], "-V") == 0)
            return 1;
        for (size_t w = 0; w < sizeof(words) / sizeof(words[0]) && length > 2; w++) {
            if (strncmp(argv[i], words[w], length) == 0)
                return 1;
        }
    }
    return 0;
}

/* Check the options that depend on each other, once all are known. */
static int finish(struct parse *parse)
{
    struct perf_options *options = parse->options;

    if (options->job.batch_file != NULL && parse->line_from == 0) /* lines have the tests */
        return parse->test_given || options->startup
                   ? perf_fail("with --batch, the lines of the file set what is measured")
                   : 0;
    if (!parse->test_given && !options->startup)
        return perf_fail("no test is given; the tests are%s", test_list);
    if (!parse->depth_given && (options->test == PERF_BW || options->test == PERF_RATE))
        options->depth = options->cuda.mem ? 4 : 16;
    if (options->run.forever) { /* a line a second: by time, and of the library alone */
        if (options->run.max_time_s == 0 && !parse->iters_given)
            return perf_fail("--forever --max-time 0 requires --iters: a row would have no end");
        options->no_floor = 1;
        if (!parse->iters_given)
            options->run.iters = MAX_ITERS;
    }
    if (!parse->recv_given && options->cuda.mem)
        options->recv_each = 1;
    if (parse->stream_given && (options->cuda.graph_ops > 0 || !options->cuda.mem))
        return perf_fail("--stream requires --mem cuda, and excludes --graph");
    if (parse->keys_given && !options->startup)
        return perf_fail("--keys requires --startup");
    if (perf_options_agree(options) != 0 || perf_options_name(options) != 0)
        return -1;
    if (options->startup && parse->of_tests != NULL)
        return perf_fail("--startup measures no operations, and excludes --%s", parse->of_tests);
    if (options->startup && parse->test_given)
        return perf_fail("--startup measures no operations, and excludes a test");
    return perf_rows_make(&parse->input, options);
}

static int parse_words(int argc, char **argv, unsigned flags, struct parse *parse)
{
    static const struct argp argp = {
        perf_option_table,
        parse_option,
        "TEST",
        "Measure push and pull between attention and FFN ranks.\v"
        "Tests:\n"
#define TEST_HELP(value_, name_, text_) "  " name_ ": " text_ "\n"
        PERF_TEST_MAP(TEST_HELP)
#undef TEST_HELP
            "\nExamples:\n"
            "  mpirun -n 4 stepaf_perf af --split attn=2,ffn=2 --check --baseline mpi\n"
            "  stepaf_perf af --procs 2 --size 64,4K,64K\n"
            "  stepaf_perf af --listen          and elsewhere: stepaf_perf af --connect HOST\n"
            "  stepaf_perf bw --procs 2 --size 1M,8M --transport tcp\n"
            "  mpirun -n 2 stepaf_perf af --split attn=1,ffn=1 --mem cuda --graph --baseline "
            "nccl\n",
        NULL,
        NULL,
        NULL};

    *parse->options = (struct perf_options){.push_dtype = STEPAF_BF16,
                                            .pull_dtype = STEPAF_BF16,
                                            .microbatches = 1,
                                            .depth = 1,
                                            .cuda.stream_ops = 1,
                                            .run.iters = 10000,
                                            .run.warmup = 1000,
                                            .run.rounds = 20,
                                            .run.max_time_s = 1,
                                            .run.timeout_us = STEPAF_TIMEOUT_DEFAULT,
                                            .keys = 64};
    return argp_parse(&argp, argc, argv, flags, NULL, parse) != 0 ? -1 : finish(parse);
}

int perf_options_parse(int argc, char **argv, int launched, int rank,
                       struct perf_options *options_p)
{
    struct parse parse = {.options = options_p};
    int helps = asks_for_help(argc, argv);

    argp_err_exit_status = PERF_EXIT_USAGE;
    argp_program_version_hook = print_version;
    /* The first rank prints it for all. */
    if (helps && rank != 0)
        exit(PERF_EXIT_OK);
    return parse_words(argc, argv, launched && !helps ? ARGP_SILENT : 0, &parse);
}

int perf_options_parse_line(int argc, char **argv, int n_words, char **words,
                            struct perf_options *options_p)
{
    struct parse parse = {.options = options_p, .line_from = argc};
    char **all = calloc((size_t)(argc + n_words) + 1, sizeof(*all));
    int rc;

    if (all == NULL)
        return perf_fail("out of memory");
    memcpy(all, argv, (size_t)argc * sizeof(*all));
    memcpy(all + argc, words, (size_t)n_words * sizeof(*all));
    rc = parse_words(argc + n_words, all, ARGP_SILENT | ARGP_IN_ORDER, &parse);
    free(all);
    return rc;
}

double perf_options_wait_s(const struct perf_options *options)
{
    const char *setting = getenv("STEPAF_TIMEOUT_US");
    double us = options->run.timeout_us > 0 ? (double)options->run.timeout_us
                : setting != NULL           ? strtod(setting, NULL)
                                            : 0.0;

    return us >= 1.0 && us <= MOST_WAIT_US ? us / 1e6 : 0.0;
}
