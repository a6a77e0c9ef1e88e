/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_info: the library's version and build, its settings, and the devices and transports
 * here. */
#include <argp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <stepaf/status.h>
#include <stepaf/types.h>

#include "info.h"

/* What to show; without any: a short form of everything. */
enum {
    SHOW_BUILD = 1 << 0,
    SHOW_SETTINGS = 1 << 1,
    SHOW_HELP = 1 << 2,
    SHOW_TRANSPORTS = 1 << 3,
    SHOW_TOPOLOGY = 1 << 4,
    SHOW_MEMORY = 1 << 5,
    SHOW_MAN = 1 << 6,
    SHOW_MAP = 1 << 7,
    SHOW_JSON = 1 << 8
};

/* Options without a letter. */
enum {
    OPTION_TOPOLOGY = 256,
    OPTION_MAP,
    OPTION_JSON,
    OPTION_MEMORY,
    OPTION_MAN,
    OPTION_ATTN,
    OPTION_FFN,
    OPTION_KEYS,
    OPTION_DEPTH,
    OPTION_BYTES
};

struct arguments {
    unsigned show;
    unsigned given; /* a bit for each option with a number */
    struct info_job job;
};

/* The options with a number, from 1 on. */
struct number {
    int key;
    const char *name;
    int max;
    int is_bytes;    /* K and M may follow the number */
    unsigned needed; /* the option is valid only if one of these is shown */
    size_t place;    /* offset in struct info_job */
};
static const struct number numbers[] = {
    {OPTION_ATTN, "attn", 512, 0, SHOW_MEMORY | SHOW_MAP,
     offsetof(struct info_job, attention_ranks)},
    {OPTION_FFN, "ffn", 512, 0, SHOW_MEMORY | SHOW_MAP, offsetof(struct info_job, ffn_ranks)},
    {OPTION_KEYS, "keys", 4096, 0, SHOW_MEMORY, offsetof(struct info_job, keys)},
    {OPTION_DEPTH, "depth", STEPAF_MAX_DEPTH, 0, SHOW_MEMORY, offsetof(struct info_job, depth)},
    {OPTION_BYTES, "bytes", 1 << 20, 1, SHOW_MEMORY, offsetof(struct info_job, bytes)},
};

static const struct argp_option options[] = {
    {"version", 'v', NULL, 0, "Show the version and how it was built", 0},
    {"settings", 'c', NULL, 0, "Show the settings, their values and where these come from", 0},
    {"settings-help", 'f', NULL, 0, "Explain all settings", 0},
    {"transports", 't', NULL, 0, "Show the transports, and why one cannot be used", 0},
    {"json", OPTION_JSON, NULL, 0,
     "Show version, build, settings and transports as one JSON object, and nothing else", 0},
    {"topology", OPTION_TOPOLOGY, NULL, 0, "Show this machine", 0},
    {"memory", OPTION_MEMORY, NULL, 0, "Run a small job and show what memory the library uses", 0},
    {"map", OPTION_MAP, NULL, 0,
     "Run a job, under mpirun all of its ranks, and show which transport connects each pair", 0},
    {"man", OPTION_MAN, NULL, 0, "Print the manual page stepaf_settings(7)", 0},
    {NULL, 0, NULL, 0, "The job of --memory, and its ranks also of --map without a launcher:", 1},
    {"attn", OPTION_ATTN, "N", 0, "Attention ranks, 1 to 512 (2)", 1},
    {"ffn", OPTION_FFN, "N", 0, "FFN ranks, 1 to 512 (2)", 1},
    {"keys", OPTION_KEYS, "N", 0, "Keys that are pushed, and as many pulled, 1 to 4096 (8)", 1},
    {"depth", OPTION_DEPTH, "N", 0, "Depth of the keys, 1 to 32 (1)", 1},
    {"bytes", OPTION_BYTES, "N", 0, "Size of each tensor, 1 to 1M (4096)", 1},
    {0},
};

static void parse_number(const char *text, const struct number *number, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    char *end;
    int shift = 0;
    long value = strtol(text, &end, 10);
    if (number->is_bytes && (*end == 'k' || *end == 'K'))
        shift = 10;
    if (number->is_bytes && (*end == 'm' || *end == 'M'))
        shift = 20;
    end += shift != 0;
    if (end == text || *end || value < 1 || value > number->max >> shift)
        argp_error(state, "--%s '%s' is not a number from 1 to %d", number->name, text,
                   number->max);
    *(int *)((char *)&arguments->job + number->place) = (int)(value << shift);
}

/* Reject options without effect. */
static void check_needed(const struct arguments *arguments, struct argp_state *state)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (arguments->given & 1U << i && !(arguments->show & numbers[i].needed))
            argp_error(state, "--%s needs --memory%s", numbers[i].name,
                       numbers[i].needed & SHOW_MAP ? " or --map" : "");
    if (arguments->show & SHOW_JSON && arguments->show != SHOW_JSON)
        argp_error(state, "--json stands alone");
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 'v':
        arguments->show |= SHOW_BUILD;
        return 0;
    case 'c':
        arguments->show |= SHOW_SETTINGS;
        return 0;
    case 'f':
        arguments->show |= SHOW_HELP;
        return 0;
    case 't':
        arguments->show |= SHOW_TRANSPORTS;
        return 0;
    case OPTION_TOPOLOGY:
        arguments->show |= SHOW_TOPOLOGY;
        return 0;
    case OPTION_MEMORY:
        arguments->show |= SHOW_MEMORY;
        return 0;
    case OPTION_MAP:
        arguments->show |= SHOW_MAP;
        return 0;
    case OPTION_JSON:
        arguments->show |= SHOW_JSON;
        return 0;
    case OPTION_MAN:
        arguments->show |= SHOW_MAN;
        return 0;
    case ARGP_KEY_END:
        check_needed(arguments, state);
        return 0;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (key == numbers[i].key) {
            parse_number(text, &numbers[i], state);
            arguments->given |= 1U << i;
            return 0;
        }
    return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = {
    .options = options,
    .parser = parse_option,
    .doc = "Show what libstepaf is, how it is set, and what it finds on this machine.\vWithout "
           "options, print a summary of all.",
};

int info_failed(const char *what)
{
    fprintf(stderr, "stepaf_info: %s: %s\n", what, stepaf_last_error()->text);
    return 0;
}

static void title(const char *text)
{
    printf("\n%s\n", text);
}

static int show_short(const struct info_env *env)
{
    info_build();
    title("settings that are not defaults (-c shows all):");
    info_settings(env, 1);
    title("transports:");
    info_transports(&env->values);
    title("this machine:");
    int done = info_topology(0);
    info_gpu();
    return done;
}

static int show(const struct arguments *arguments, const struct info_env *env)
{
    int done = 1;
    if (!arguments->show)
        return show_short(env);
    if (arguments->show & SHOW_JSON)
        done &= info_json(env);
    if (arguments->show & SHOW_BUILD)
        info_build();
    if (arguments->show & SHOW_SETTINGS)
        info_settings(env, 0);
    if (arguments->show & SHOW_HELP)
        info_settings_help();
    if (arguments->show & SHOW_TRANSPORTS)
        info_transports(&env->values);
    if (arguments->show & SHOW_TOPOLOGY) {
        done &= info_topology(1);
        info_gpu();
    }
    if (arguments->show & SHOW_MEMORY)
        done &= info_memory(&arguments->job);
    if (arguments->show & SHOW_MAP)
        done &= info_map(&arguments->job);
    if (arguments->show & SHOW_MAN)
        info_man();
    return done;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.job = {2, 2, 8, 1, 4096}};
    struct info_env env = {0};
    int done = 1;

    argp_err_exit_status = 2;
    if (argp_parse(&argp, argc, argv, ARGP_NO_ARGS, NULL, &arguments) != 0)
        return 2;
    /* Output that is requested because a setting is wrong must not fail for it. */
    if (!arguments.show || arguments.show & (SHOW_SETTINGS | SHOW_TRANSPORTS | SHOW_JSON))
        done = info_load(&env);
    done &= show(&arguments, &env);
    stepaf_env_free(&env.values);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("stepaf_info: standard output");
        return 1;
    }
    return !done;
}
