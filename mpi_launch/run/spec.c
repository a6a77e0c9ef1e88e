/* SPDX-License-Identifier: Apache-2.0 */
#include "spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

const char *run_role_word(enum run_role role)
{
    return role == RUN_ROLE_ATTENTION ? "attention" : "ffn";
}

void run_spec_format(const struct run_spec *spec, char *text_p, size_t capacity)
{
    FILE *stream = fmemopen(text_p, capacity, "w");

    text_p[0] = '\0';
    if (!stream)
        return;
    fprintf(stream, "bind=%s%s%s", run_bind_word(spec->bind), spec->devices ? ",devices" : "",
            spec->verbose ? ",verbose" : "");
    if (spec->role != RUN_ROLE_NONE)
        fprintf(stream, ",role=%s", run_role_word(spec->role));
    for (int i = 0; i < spec->n_programs; i++)
        fprintf(stream, ",program=%s:%d:%d", run_role_word(spec->programs[i].role),
                spec->programs[i].ranks, spec->programs[i].words);
    fclose(stream);
    text_p[capacity - 1] = '\0';
}

static int parse_role(const char *word, enum run_role *role_p)
{
    for (int role = RUN_ROLE_ATTENTION; role <= RUN_ROLE_FFN; role++) {
        if (strcmp(word, run_role_word((enum run_role)role)) == 0) {
            *role_p = (enum run_role)role;
            return 0;
        }
    }
    return -1;
}

static int parse_program(char *text, struct run_spec *spec)
{
    struct run_spec_program *program = &spec->programs[spec->n_programs];
    char *ranks = strchr(text, ':');
    char *end;

    if (!ranks || spec->n_programs == RUN_PROGRAMS_MAX)
        return -1;
    *ranks++ = '\0';
    if (parse_role(text, &program->role) != 0)
        return -1;
    long n = strtol(ranks, &end, 10);
    if (*end != ':' || n < 1 || n > RUN_RANKS_MAX)
        return -1;
    program->ranks = (int)n;
    n = strtol(end + 1, &end, 10);
    if (*end || n < 1 || n > RUN_RANKS_MAX)
        return -1;
    program->words = (int)n;
    spec->n_programs++;
    return 0;
}

static int parse_item(char *item, struct run_spec *spec)
{
    if (strncmp(item, "bind=", 5) == 0)
        return run_bind_parse(item + 5, &spec->bind);
    if (strncmp(item, "role=", 5) == 0)
        return parse_role(item + 5, &spec->role);
    if (strncmp(item, "program=", 8) == 0)
        return parse_program(item + 8, spec);
    if (strcmp(item, "devices") == 0)
        spec->devices = 1;
    else if (strcmp(item, "verbose") == 0)
        spec->verbose = 1;
    else
        return -1;
    return 0;
}

int run_spec_parse(const char *text, struct run_spec *spec_p)
{
    char copy[RUN_SPEC_MAX];
    struct run_spec spec = {0};
    char *rest = copy;

    if (strlen(text) >= sizeof(copy))
        return run_fail("--exec: the text is too long");
    memcpy(copy, text, strlen(text) + 1);
    for (char *item; (item = strsep(&rest, ","));)
        if (parse_item(item, &spec) != 0)
            return run_fail("--exec %s: this is for stepaf-run's own use", text);
    *spec_p = spec;
    return 0;
}
