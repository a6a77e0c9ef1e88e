/* SPDX-License-Identifier: Apache-2.0 */
/* Open MPI's mpirun. Of several programs it gets one, stepaf-run itself: the one of Debian 13
 * (5.0.7) and of Ubuntu since 25.04 crashes where it is to start two, whatever they are
 * (open-mpi/ompi#13303). */
#include <string.h>

#include "command.h"
#include "fail.h"

/* Whether the environment says already that root means it; Open MPI wants it twice. */
static int root_is_allowed(char *const *environment)
{
    const char *first = run_env_get(environment, "OMPI_ALLOW_RUN_AS_ROOT");
    const char *second = run_env_get(environment, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");

    return first && second && strcmp(first, "1") == 0 && strcmp(second, "1") == 0;
}

/* On this machine alone: hosts have room as given, and in an allocation Slurm has said it. */
static int outnumbers_cores(const struct run_job *job)
{
    return job->layout.hosts.n == 0 && !run_env_get(job->facts->environment, "SLURM_JOB_ID") &&
           job->layout.ranks > job->facts->cores;
}

static void add_places(const struct run_job *job, struct run_words *argv)
{
    const struct run_layout *layout = &job->layout;

    if (layout->hosts.n) {
        run_words_add(argv, "--map-by");
        run_words_add(argv, "slot");
    } else if (layout->nodes > 1) {
        run_words_add(argv, "--map-by");
        run_words_addf(argv, "ppr:%d:node", layout->per_node);
    }
    /* Ranks are bound by stepaf-run itself, or not at all. */
    run_words_add(argv, "--bind-to");
    run_words_add(argv, "none");
}

/* mpirun takes the value of a name from its own environment: no value has to get through the way
 * that mpirun splits NAME=VALUE. */
static void add_names(const struct run_job *job, struct run_words *argv)
{
    for (int i = 0; i < job->forward.n; i++) {
        run_words_add(argv, "-x");
        run_words_add(argv, job->forward.word[i]);
    }
}

int run_command_openmpi(const struct run_job *job, struct run_command *command)
{
    const struct run_options *options = job->options;
    struct run_words *argv = &command->argv;

    if (job->facts->is_root && options->allow_root)
        run_words_add(argv, "--allow-run-as-root");
    else if (job->facts->is_root && !root_is_allowed(job->facts->environment))
        return run_fail(
            "Open MPI starts no program as root: to start it anyway, give --allow-root");
    if (options->oversubscribe || outnumbers_cores(job))
        run_words_add(argv, "--oversubscribe");
    if (options->timeout_s) {
        run_words_add(argv, "--timeout");
        run_words_addf(argv, "%d", options->timeout_s);
    }
    add_places(job, argv);
    add_names(job, argv);
    for (int i = 0; i < options->pass.n; i++)
        run_words_add(argv, options->pass.word[i]);
    if (job->layout.hosts.n) {
        run_words_add(argv, "--host");
        run_command_hosts(&job->layout.hosts, RUN_HOSTS_COUNTS, argv);
    }
    run_words_add(argv, "-n");
    run_words_addf(argv, "%d", job->layout.ranks);
    run_command_all(job, argv);
    return 0;
}
