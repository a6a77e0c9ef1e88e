/* SPDX-License-Identifier: Apache-2.0 */
/* Hydra, the mpiexec of MPICH, and Intel MPI's, which has grown out of it. */
#include <string.h>

#include "command.h"
#include "fail.h"

/* Intel's knows no number for each host, only one for all. */
static int add_intel_hosts(const struct run_hosts *hosts, struct run_words *argv)
{
    int last = hosts->n - 1;

    for (int i = 1; i <= last; i++)
        if (hosts->host[i].ranks != hosts->host[0].ranks &&
            (i < last || hosts->host[i].ranks > hosts->host[0].ranks))
            return run_fail("Intel MPI requires the same number of ranks on all hosts, but %s gets "
                            "%d and %s gets %d",
                            hosts->host[i].name, hosts->host[i].ranks, hosts->host[0].name,
                            hosts->host[0].ranks);
    run_words_add(argv, "-hosts");
    run_command_hosts(hosts, RUN_HOSTS_NAMES, argv);
    run_words_add(argv, "-ppn");
    run_words_addf(argv, "%d", hosts->host[0].ranks);
    return 0;
}

static int add_places(const struct run_job *job, struct run_words *argv)
{
    const struct run_layout *layout = &job->layout;
    int is_intel = job->launcher->kind == RUN_INTEL;

    if (layout->hosts.n && is_intel) {
        if (add_intel_hosts(&layout->hosts, argv) != 0)
            return -1;
    } else if (layout->hosts.n) {
        run_words_add(argv, "-hosts");
        run_command_hosts(&layout->hosts, RUN_HOSTS_COUNTS, argv);
    } else if (layout->nodes > 1) {
        run_words_add(argv, "-ppn");
        run_words_addf(argv, "%d", layout->per_node);
    }
    /* Ranks are bound by stepaf-run itself, or not at all. */
    if (is_intel) {
        run_words_add(argv, "-genv");
        run_words_add(argv, "I_MPI_PIN");
        run_words_add(argv, "off");
    } else {
        run_words_add(argv, "-bind-to");
        run_words_add(argv, "none");
    }
    return 0;
}

/* Whether a NAME or NAME=VALUE means something to mpiexec itself, in its own environment. */
static int is_for_mpiexec(const char *text)
{
    static const char *const names[] = {"LD_", "MPIEXEC_", "HYDRA_", "I_MPI_"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(text, names[i], strlen(names[i])) == 0)
            return 1;
    return 0;
}

/* Whether a NAME or NAME=VALUE is the secret, or one of --env, whose value may be one: everybody can
 * read a command line. */
static int is_private(const struct run_options *options, const char *text)
{
    size_t bytes = strcspn(text, "=");

    if (is_for_mpiexec(text))
        return 0;
    if (bytes == strlen("STEPAF_SECRET") && strncmp(text, "STEPAF_SECRET", bytes) == 0)
        return 1;
    for (int i = 0; i < options->env.n; i++)
        if (strcspn(options->env.word[i], "=") == bytes &&
            strncmp(options->env.word[i], text, bytes) == 0)
            return 1;
    return 0;
}

/* What is private goes by mpiexec's own environment, of which ranks get all; settings go with their
 * values, since Hydra's lists of names would leave everything else out. */
static void add_variables(const struct run_job *job, struct run_command *command)
{
    struct run_words env = command->env;

    command->env = (struct run_words){0};
    for (int i = 0; i < env.n; i++)
        if (is_private(job->options, env.word[i]))
            run_words_add(&command->env, env.word[i]);
    for (int i = 0; i < job->forward.n; i++) {
        const char *name = job->forward.word[i];
        const char *value = env.n ? run_env_get(env.word, name) : NULL;
        if (is_private(job->options, name))
            continue;
        if (!value)
            value = run_env_get(job->facts->environment, name);
        run_words_add(&command->argv, "-genv");
        run_words_add(&command->argv, name);
        run_words_add(&command->argv, value ? value : "");
    }
    run_words_free(&env);
}

int run_command_hydra(const struct run_job *job, struct run_command *command)
{
    const struct run_options *options = job->options;
    struct run_words *argv = &command->argv;

    if (add_places(job, argv) != 0)
        return -1;
    add_variables(job, command);
    if (options->timeout_s)
        run_words_addf(&command->env, "MPIEXEC_TIMEOUT=%d", options->timeout_s);
    for (int i = 0; i < options->pass.n; i++)
        run_words_add(argv, options->pass.word[i]);
    for (int i = 0; i < options->n_programs; i++) {
        if (i)
            run_words_add(argv, ":");
        run_words_add(argv, "-n");
        run_words_addf(argv, "%d",
                       options->n_programs > 1
                           ? options->programs[i].attention + options->programs[i].ffn
                           : job->layout.ranks);
        run_command_rank(job, i, argv);
    }
    return 0;
}
