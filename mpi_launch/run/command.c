/* SPDX-License-Identifier: Apache-2.0 */
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "spec.h"

/* What all launchers' ranks share. */
static void add_split(const struct run_options *options, char *const *environment,
                      struct run_words *env)
{
    const struct run_program *program = &options->programs[0];
    const char *node = options->per_node ? "per-node:" : "";

    if (options->n_programs == 1)
        run_words_addf(env, "STEPAF_SPLIT=attn=%s%d,ffn=%s%d%s", node, program->attention, node,
                       program->ffn, options->interleave ? ",interleave" : "");
    else if (run_env_get(environment, "STEPAF_SPLIT"))
        run_words_add(env, "STEPAF_SPLIT=");
}

static void add_env(const struct run_options *options, char *const *environment,
                    struct run_words *env)
{
    add_split(options, environment, env);
    for (int i = 0; i < options->env.n; i++)
        if (strchr(options->env.word[i], '='))
            run_words_add(env, options->env.word[i]);
}

/* Add the name that @a text begins with, unless it is there. */
static void add_name(const char *text, struct run_words *names)
{
    size_t bytes = strcspn(text, "=");

    for (int i = 0; i < names->n; i++)
        if (strncmp(names->word[i], text, bytes) == 0 && !names->word[i][bytes])
            return;
    run_words_addf(names, "%.*s", (int)bytes, text);
}

static int compare_names(const void *first, const void *second)
{
    return strcmp(*(char *const *)first, *(char *const *)second);
}

/* Names in the order of the alphabet, so that a line does not depend on how the environment lies in
 * memory. */
static void collect_names(const struct run_job *job, const struct run_words *env,
                          struct run_words *names)
{
    for (char *const *variable = job->facts->environment; *variable; variable++)
        if (strncmp(*variable, "STEPAF_", 7) == 0 &&
            run_is_name(*variable, strcspn(*variable, "=")))
            add_name(*variable, names);
    for (int i = 0; i < env->n; i++)
        add_name(env->word[i], names);
    for (int i = 0; i < job->options->env.n; i++)
        add_name(job->options->env.word[i], names);
    if (names->n > 0)
        qsort(names->word, (size_t)names->n, sizeof(*names->word), compare_names);
}

int run_command_make(const struct run_options *options, const struct run_launcher *launcher,
                     const struct run_facts *facts, struct run_command *command_p)
{
    static int (*const makers[])(const struct run_job *, struct run_command *) = {
        [RUN_OPENMPI] = run_command_openmpi, [RUN_HYDRA] = run_command_hydra,
        [RUN_INTEL] = run_command_hydra,     [RUN_SLURM] = run_command_slurm,
        [RUN_SSH] = run_command_ssh,
    };
    const char *role = run_env_get(facts->environment, "STEPAF_ROLE");
    struct run_job job = {.options = options, .launcher = launcher, .facts = facts};

    *command_p = (struct run_command){0};
    if (role && *role && strcmp(role, "auto") != 0)
        return run_fail(
            "STEPAF_ROLE=%.32s is in the environment and would be the role of every rank: unset it",
            role);
    if (run_layout_make(options, launcher, facts->environment, &job.layout) != 0)
        return -1;
    add_env(options, facts->environment, &command_p->env);
    collect_names(&job, &command_p->env, &job.forward);
    run_words_add(&command_p->argv, launcher->kind == RUN_SSH ? facts->self : launcher->program);
    int rc = makers[launcher->kind](&job, command_p);
    if (rc != 0)
        run_command_free(command_p);
    run_words_free(&job.forward);
    run_hosts_free(&job.layout.hosts);
    return rc;
}

static enum run_role role_of(const struct run_options *options, int index)
{
    if (options->n_programs == 1)
        return RUN_ROLE_NONE;
    return options->programs[index].attention ? RUN_ROLE_ATTENTION : RUN_ROLE_FFN;
}

void run_command_rank(const struct run_job *job, int index, struct run_words *argv)
{
    const struct run_options *options = job->options;
    const struct run_program *program = &options->programs[index];
    struct run_spec spec = {.bind = options->bind,
                            .devices = options->device_per_rank,
                            .verbose = options->verbose,
                            .role = role_of(options, index)};

    if (spec.bind != RUN_BIND_NONE || spec.devices || spec.role != RUN_ROLE_NONE) {
        char text[RUN_SPEC_MAX];
        run_spec_format(&spec, text, sizeof(text));
        run_words_add(argv, job->facts->self);
        run_words_add(argv, "--exec");
        run_words_add(argv, text);
    }
    for (int i = 0; i < program->n_words; i++)
        run_words_add(argv, program->words[i]);
}

/* All programs behind one stepaf-run. */
static void add_programs(const struct run_job *job, struct run_words *argv)
{
    const struct run_options *options = job->options;
    struct run_spec spec = {.bind = options->bind,
                            .devices = options->device_per_rank,
                            .verbose = options->verbose,
                            .n_programs = options->n_programs};
    char text[RUN_SPEC_MAX];

    for (int i = 0; i < options->n_programs; i++) {
        const struct run_program *program = &options->programs[i];
        spec.programs[i] = (struct run_spec_program){.role = program->attention ? RUN_ROLE_ATTENTION
                                                                                : RUN_ROLE_FFN,
                                                     .ranks = program->attention + program->ffn,
                                                     .words = program->n_words};
    }
    run_spec_format(&spec, text, sizeof(text));
    run_words_add(argv, job->facts->self);
    run_words_add(argv, "--exec");
    run_words_add(argv, text);
    for (int i = 0; i < options->n_programs; i++)
        for (int word = 0; word < options->programs[i].n_words; word++)
            run_words_add(argv, options->programs[i].words[word]);
}

void run_command_all(const struct run_job *job, struct run_words *argv)
{
    if (job->options->n_programs > 1)
        add_programs(job, argv);
    else
        run_command_rank(job, 0, argv);
}

void run_command_hosts(const struct run_hosts *hosts, enum run_hosts_form form,
                       struct run_words *argv)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);

    if (!stream)
        return;
    for (int i = 0; i < hosts->n; i++) {
        const struct run_host *host = &hosts->host[i];
        int times = form == RUN_HOSTS_REPEATED ? host->ranks : 1;
        for (int n = 0; n < times; n++)
            fprintf(stream, "%s%s", i + n ? "," : "", host->name);
        if (form == RUN_HOSTS_COUNTS)
            fprintf(stream, ":%d", host->ranks);
    }
    fclose(stream);
    run_words_add(argv, text);
    free(text);
}

void run_command_print(const struct run_command *command, void *stream)
{
    static const char secret[] = "STEPAF_SECRET=";

    for (int i = 0; i < command->env.n; i++) {
        if (strncmp(command->env.word[i], secret, sizeof(secret) - 1) == 0)
            fprintf(stream, "%s...", secret);
        else
            run_quote_assignment(command->env.word[i], stream);
        fputc(' ', stream);
    }
    for (int i = 0; i < command->argv.n; i++) {
        if (i)
            fputc(' ', stream);
        run_quote(command->argv.word[i], stream);
    }
    fputc('\n', stream);
}

void run_command_free(struct run_command *command)
{
    run_words_free(&command->env);
    run_words_free(&command->argv);
}
