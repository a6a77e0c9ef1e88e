/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/version.h>

#include "options_table.h"

struct parse {
    struct options *options;
    struct reason *reason;
};

static int take_int(const struct parse *parse, const char *name, const char *text, int64_t min,
                    int64_t max, int64_t *value_p)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max)
        return reason_bad_input(parse->reason, "--%s %s: not a whole number in %lld..%lld", name,
                                text, (long long)min, (long long)max);
    *value_p = value;
    return 0;
}

static int take_count(const struct parse *parse, const char *name, const char *text, int min,
                      int max, int *value_p)
{
    int64_t value;
    if (take_int(parse, name, text, min, max, &value))
        return -1;
    *value_p = (int)value;
    return 0;
}

static int take_seconds(const struct parse *parse, const char *name, const char *text,
                        int64_t *value_p)
{
    int64_t value;
    if (take_int(parse, name, text, 1, 86400, &value))
        return -1;
    *value_p = value * 1000000;
    return 0;
}

static int take_temperature(const struct parse *parse, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value <= 100))
        return reason_bad_input(parse->reason, "--temperature %s: not a number in 0..100", text);
    parse->options->temperature = value;
    return 0;
}

static int take_prompt(const struct parse *parse, const char *text, int is_ids)
{
    struct options *options = parse->options;
    if (!*text)
        return reason_bad_input(parse->reason, "the prompt is empty");
    if (options->n_prompts == OPTIONS_MAX_PROMPTS)
        return reason_bad_input(parse->reason, "more than %d prompts", OPTIONS_MAX_PROMPTS);
    options->prompts[options->n_prompts++] = (struct option_prompt){text, is_ids};
    return 0;
}

/* Options with a number. */
static int take_number(const struct parse *parse, int key, const char *arg)
{
    struct options *options = parse->options;
    int64_t seed;
    switch (key) {
    case KEY_TOKENS:
        return take_count(parse, "tokens", arg, 1, 1 << 20, &options->tokens);
    case KEY_BATCH:
        return take_count(parse, "batch", arg, 1, OPTIONS_MAX_SEQUENCES, &options->batch);
    case KEY_MICROBATCHES:
        return take_count(parse, "microbatches", arg, 1, OPTIONS_MAX_MICROBATCHES,
                          &options->microbatches);
    case KEY_CHUNK:
        return take_count(parse, "chunk", arg, 1, 65536, &options->chunk);
    case KEY_REPLICAS:
        return take_count(parse, "replicas", arg, 1, 64, &options->replicas.n);
    case KEY_KILL_AFTER:
        return take_int(parse, "kill-after", arg, 1, INT64_MAX, &options->replicas.kill_after);
    case KEY_PROCS:
        return take_count(parse, "procs", arg, 2, 1024, &options->procs);
    case KEY_THREADS:
        return take_count(parse, "threads", arg, 1, 1024, &options->threads);
    case KEY_TEMPERATURE:
        return take_temperature(parse, arg);
    case KEY_SEED:
        if (take_int(parse, "seed", arg, 0, INT64_MAX, &seed))
            return -1;
        options->seed = (uint64_t)seed;
        return 0;
    case KEY_FFN_DELAY_US:
        return take_int(parse, "ffn-delay-us", arg, 0, 10000000, &options->ffn_delay_us);
    case KEY_TIMEOUT_S:
        return take_seconds(parse, "timeout", arg, &options->timeout_us);
    case KEY_LOAD_TIMEOUT_S:
        return take_seconds(parse, "load-timeout", arg, &options->load_timeout_us);
    default:
        return 1;
    }
}

/* Options with a text, or with nothing; 1 for one that is neither. */
static int take_text(const struct parse *parse, int key, const char *arg)
{
    struct options *options = parse->options;
    switch (key) {
    case KEY_MODEL:
        options->model = arg;
        return 0;
    case KEY_SPLIT:
        options->split = arg;
        return 0;
    case KEY_VERIFY:
        options->verify = arg;
        return 0;
    case KEY_TRACE:
        options->trace = arg;
        return 0;
    case KEY_JSON:
        options->json = arg;
        return 0;
    case KEY_ADDRESS_FILE:
        options->replicas.address_file = arg;
        return 0;
    case KEY_PROMPT:
        return take_prompt(parse, arg, 0);
    case KEY_PROMPT_IDS:
        return take_prompt(parse, arg, 1);
    case KEY_SCATTER:
        options->scatter = 1;
        return 0;
    case KEY_SINGLE:
        options->single = 1;
        return 0;
    case KEY_IGNORE_EOS:
        options->ignore_eos = 1;
        return 0;
    case KEY_QUIET:
        options->quiet = 1;
        return 0;
    case KEY_PROGRESS:
        options->progress = 1;
        return 0;
    default:
        return 1;
    }
}

static error_t take(int key, char *arg, struct argp_state *state)
{
    const struct parse *parse = state->input;
    int result;
    switch (key) {
    case ARGP_KEY_ARG:
        reason_bad_input(parse->reason, "\"%s\" is not an option; see --help", arg);
        return EINVAL;
    case ARGP_KEY_ERROR:
        if (parse->reason->code == CODE_OK)
            reason_bad_input(parse->reason, "%s: unknown, ambiguous or incomplete; see --help",
                             state->argv[state->next > 0 ? state->next - 1 : 0]);
        return 0;
    default:
        result = take_number(parse, key, arg);
        if (result > 0)
            result = take_text(parse, key, arg);
        return result > 0 ? ARGP_ERR_UNKNOWN : result < 0 ? EINVAL : 0;
    }
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "stepaf_decode (libstepaf) %s\n", stepaf_version());
}

/* Long options may be cut short, as getopt has it. */
static int wants_help(int argc, char **argv)
{
    static const char *const words[] = {"--help", "--usage", "--version"};
    for (int i = 1; i < argc; i++) {
        size_t length = strlen(argv[i]);
        if (strcmp(argv[i], "-?") == 0 || strcmp(argv[i], "-V") == 0)
            return 1;
        for (size_t w = 0; w < sizeof(words) / sizeof(words[0]) && length > 2; w++)
            if (strncmp(argv[i], words[w], length) == 0)
                return 1;
    }
    return 0;
}

static int check(const struct options *options, struct reason *reason)
{
    if (options->single && (options->procs || options->split || options->trace))
        return reason_bad_input(reason, "--single excludes --procs, --split and --trace");
    if (options->replicas.kill_after && (options->replicas.n == 1 || !options->procs))
        return reason_bad_input(reason, "--kill-after requires --replicas and --procs");
    if (options->replicas.address_file && options->replicas.n == 1)
        return reason_bad_input(reason, "--address-file requires --replicas");
    if (options->batch && options->batch < options->n_prompts)
        return reason_bad_input(reason, "--batch %d is fewer than %d prompts", options->batch,
                                options->n_prompts);
    if (options->verify && options->temperature > 0)
        return reason_bad_input(reason, "--verify compares the likeliest tokens: no --temperature");
    return 0;
}

int options_parse(int argc, char **argv, struct options *options_p, struct reason *reason)
{
    static const struct argp argp = {.options = options_table, .parser = take, .doc = options_doc};
    struct parse parse = {options_p, reason};
    *options_p = (struct options){.microbatches = 3,
                                  .replicas = {.n = 1},
                                  .chunk = 128,
                                  .timeout_us = 10000000,
                                  .load_timeout_us = 600000000};
    reason->code = CODE_OK;
    options_p->prompts = calloc(OPTIONS_MAX_PROMPTS, sizeof(options_p->prompts[0]));
    if (!options_p->prompts)
        return reason_no_memory(reason);
    argp_program_version_hook = print_version;
    argp_err_exit_status = CODE_BAD_INPUT;
    unsigned flags = wants_help(argc, argv) ? 0 : ARGP_NO_EXIT | ARGP_NO_ERRS;
    if (argp_parse(&argp, argc, argv, flags, NULL, &parse)) {
        if (reason->code == CODE_OK)
            reason_bad_input(reason, "bad options; see --help");
        return -1;
    }
    return check(options_p, reason);
}

void options_free(struct options *options)
{
    free(options->prompts);
    *options = (struct options){0};
}
