/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/version.h>

#include "fail.h"
#include "options_table.h"

/* One program with the options before it; the command line separates programs with ':'. */
struct parse {
    struct run_options *options;
    struct run_program *program;
    int is_first;
};

static const char *const bind_words[] = {"auto", "core", "numa", "gpu", "none"};

const char *run_bind_word(enum run_bind bind)
{
    return bind_words[bind];
}

int run_bind_parse(const char *word, enum run_bind *bind_p)
{
    for (size_t i = 0; i < sizeof(bind_words) / sizeof(*bind_words); i++) {
        if (strcmp(word, bind_words[i]) == 0) {
            *bind_p = (enum run_bind)i;
            return 0;
        }
    }
    return run_fail("--bind %s: it takes core, numa, gpu, none or auto", word);
}

static int parse_number(const char *text, const char *option, int max, int *number_p)
{
    char *end;
    long number = strtol(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || number < 1 || number > max)
        return run_fail("%s %s: it takes a number from 1 to %d", option, text, max);
    *number_p = (int)number;
    return 0;
}

static int parse_env(const char *text, struct run_options *options)
{
    const char *equals = strchr(text, '=');
    size_t bytes = equals ? (size_t)(equals - text) : strlen(text);

    if (!run_is_name(text, bytes))
        return run_fail("--env %s: it takes NAME or NAME=VALUE", text);
    if ((bytes == 12 && strncmp(text, "STEPAF_SPLIT", bytes) == 0) ||
        (bytes == 11 && strncmp(text, "STEPAF_ROLE", bytes) == 0))
        return run_fail("--env %s: -a and -f set the roles", text);
    if (!equals && !getenv(text))
        return run_fail("--env %s: there is no such variable here; give NAME=VALUE", text);
    run_words_add(&options->env, text);
    return 0;
}

static int parse_place(int key, const char *text, struct run_options *options)
{
    switch (key) {
    case KEY_INTERLEAVE:
        options->interleave = 1;
        return 0;
    case KEY_PER_NODE:
        options->per_node = 1;
        return 0;
    case KEY_HOSTS:
        options->hosts = text;
        return 0;
    case KEY_HOSTFILE:
        options->hostfile = text;
        return 0;
    case 'N':
        return parse_number(text, "--nodes", RUN_RANKS_MAX, &options->nodes);
    case KEY_SLURM:
        options->slurm = 1;
        run_words_split(&options->pass, text ? text : "");
        return 0;
    case KEY_LAUNCHER:
        options->launcher = text;
        return 0;
    case KEY_PASS:
        run_words_add(&options->pass, text);
        return 0;
    case KEY_BIND:
        return run_bind_parse(text, &options->bind);
    case KEY_DEVICE_PER_RANK:
        options->device_per_rank = 1;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int parse_job(int key, const char *text, struct run_options *options)
{
    switch (key) {
    case KEY_OVERSUBSCRIBE:
        options->oversubscribe = 1;
        return 0;
    case KEY_ENV:
        return parse_env(text, options);
    case KEY_TIMEOUT:
        return parse_number(text, "--timeout", RUN_TIMEOUT_MAX_S, &options->timeout_s);
    case KEY_ALLOW_ROOT:
        options->allow_root = 1;
        return 0;
    case KEY_DRY_RUN:
        options->dry_run = 1;
        return 0;
    case 'v':
        options->verbose = 1;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int parse_key(int key, char *text, struct argp_state *state)
{
    struct parse *parse = state->input;
    int rc;

    switch (key) {
    case 'a':
        return parse_number(text, "-a", RUN_RANKS_MAX, &parse->program->attention);
    case 'f':
        return parse_number(text, "-f", RUN_RANKS_MAX, &parse->program->ffn);
    case ARGP_KEY_ARG:
        /* Everything after the program's name belongs to the program. */
        parse->program->words = &state->argv[state->next - 1];
        parse->program->n_words = state->argc - state->next + 1;
        state->next = state->argc;
        return 0;
    default:
        rc = parse_place(key, text, parse->options);
        if (rc == ARGP_ERR_UNKNOWN)
            rc = parse_job(key, text, parse->options);
        if (rc == 0 && !parse->is_first)
            return run_fail("only -a and -f can stand behind a ':'; the other options go before "
                            "the first program");
        return rc;
    }
}

static __attribute__((noreturn)) void refuse(void)
{
    fprintf(stderr, "stepaf-run: %s\n", run_fail_text());
    exit(RUN_EXIT_USAGE);
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    int rc = parse_key(key, text, state);

    if (rc == -1)
        refuse();
    return rc;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "stepaf-run %s\n", STEPAF_VERSION_STRING);
}

/* Several programs: each has one role. */
static int check_programs(const struct run_options *options)
{
    int attention = 0;
    int ffn = 0;

    for (int i = 0; i < options->n_programs; i++) {
        const struct run_program *program = &options->programs[i];
        if (!program->attention == !program->ffn)
            return run_fail(
                "with several programs, each must have either -a or -f, but program %d has %s",
                i + 1, program->attention ? "both" : "neither");
        attention += program->attention;
        ffn += program->ffn;
    }
    if (!attention || !ffn)
        return run_fail("no program has %s ranks", attention ? "FFN (-f)" : "attention (-a)");
    if (attention + ffn > RUN_RANKS_MAX)
        return run_fail("more than %d ranks", RUN_RANKS_MAX);
    if (options->interleave || options->per_node)
        return run_fail("--interleave and --per-node require one program that has both roles");
    return 0;
}

/* Check the options that depend on each other. */
static int check(const struct run_options *options)
{
    const struct run_program *first = &options->programs[0];

    for (int i = 0; i < options->n_programs; i++)
        if (options->programs[i].n_words == 0)
            return run_fail(options->n_programs > 1 ? "a program is missing before or after a ':'"
                                                    : "no program is given");
    if (options->hosts && options->hostfile)
        return run_fail("--hosts and --hostfile exclude each other");
    if (options->nodes && (options->hosts || options->hostfile))
        return run_fail("--nodes and a list of hosts exclude each other");
    if (options->slurm && options->launcher && strcmp(options->launcher, "slurm") != 0 &&
        strcmp(options->launcher, "auto") != 0)
        return run_fail("--slurm and --launcher %s exclude each other", options->launcher);
    if (options->n_programs > 1)
        return check_programs(options);
    if (!first->attention || !first->ffn)
        return run_fail("%s is missing: how many %s ranks?", first->attention ? "-f N" : "-a N",
                        first->attention ? "FFN" : "attention");
    return 0;
}

/* Parse argv[1..argc), which extends to a ':' or the end. argv[0] is overwritten by the name
 * that messages begin with. */
static void parse_segment(int argc, char **argv, struct run_options *options, int is_first)
{
    static char name[] = "stepaf-run";
    static const struct argp argp = {
        run_option_table,
        parse_option,
        "[--] PROGRAM [ARGUMENT...]\n-a N [OPTION...] PROGRAM [ARGUMENT...] : -f N PROGRAM "
        "[ARGUMENT...]",
        "Start attention and FFN ranks with the available launcher: Open MPI, MPICH or Intel MPI, "
        "or Slurm.\vExamples:\n  stepaf-run -a 2 -f 2 ./program\n  stepaf-run -a 4 ./attention : "
        "-f 2 ./ffn\n  stepaf-run -a 6 -f 2 --per-node --hosts n1,n2 --device-per-rank ./program\n "
        " stepaf-run -a 6 -f 2 --slurm='-p gpu -t 10' --dry-run ./program\n",
        NULL,
        NULL,
        NULL};
    struct parse parse = {.options = options, .is_first = is_first};

    if (options->n_programs == RUN_PROGRAMS_MAX) {
        run_fail_set("at most %d programs are supported", RUN_PROGRAMS_MAX);
        refuse();
    }
    parse.program = &options->programs[options->n_programs++];
    argv[0] = name;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &parse) != 0)
        exit(RUN_EXIT_USAGE);
}

void run_options_parse(int argc, char **argv, struct run_options *options_p)
{
    int from = 0;

    *options_p = (struct run_options){0};
    argp_err_exit_status = RUN_EXIT_USAGE;
    argp_program_version_hook = print_version;
    for (int i = 1; i <= argc; i++) {
        if (i < argc && strcmp(argv[i], ":") != 0)
            continue;
        parse_segment(i - from, argv + from, options_p, from == 0);
        from = i;
    }
    if (check(options_p) != 0)
        refuse();
}

void run_options_free(struct run_options *options)
{
    run_words_free(&options->env);
    run_words_free(&options->pass);
}
