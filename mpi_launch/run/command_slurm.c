/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's srun. Of several programs it makes a heterogeneous job, whose parts cannot share a node.
 * So stepaf-run starts itself on all ranks of a plain job, and takes the program by the rank's
 * number; only in an allocation that is heterogeneous already each program is a part. */
#include <stdlib.h>

#include "command.h"
#include "fail.h"

/* How many ranks each host gets, if that is one number; else 0. */
static int even_share(const struct run_hosts *hosts)
{
    for (int i = 1; i < hosts->n; i++)
        if (hosts->host[i].ranks != hosts->host[0].ranks)
            return 0;
    return hosts->host[0].ranks;
}

static void add_hosts(const struct run_hosts *hosts, struct run_words *argv)
{
    int share = even_share(hosts);

    run_words_addf(argv, "--nodes=%d", hosts->n);
    if (share)
        run_words_addf(argv, "--ntasks-per-node=%d", share);
    else
        run_words_add(argv, "--distribution=arbitrary");
    run_words_add(argv, "--nodelist");
    run_command_hosts(hosts, share ? RUN_HOSTS_NAMES : RUN_HOSTS_REPEATED, argv);
}

static void add_places(const struct run_job *job, struct run_words *argv)
{
    const struct run_layout *layout = &job->layout;

    if (layout->hosts.n) {
        add_hosts(&layout->hosts, argv);
        return;
    }
    if (layout->nodes)
        run_words_addf(argv, "--nodes=%d", layout->nodes);
    if (layout->per_node)
        run_words_addf(argv, "--ntasks-per-node=%d", layout->per_node);
}

static void add_options(const struct run_job *job, struct run_words *argv)
{
    const struct run_options *options = job->options;

    if (*job->launcher->mpi)
        run_words_addf(argv, "--mpi=%s", job->launcher->mpi);
    /* As under mpirun: one rank that fails ends all. */
    run_words_add(argv, "--export=ALL");
    run_words_add(argv, "--kill-on-bad-exit=1");
    /* Ranks are bound by stepaf-run itself, or not at all. */
    run_words_add(argv, "--cpu-bind=none");
    if (options->oversubscribe)
        run_words_add(argv, "--overcommit");
    if (options->timeout_s)
        run_words_addf(argv, "--time=%d:%02d", options->timeout_s / 60, options->timeout_s % 60);
}

static void pass(const struct run_job *job, struct run_words *argv)
{
    for (int i = 0; i < job->options->pass.n; i++)
        run_words_add(argv, job->options->pass.word[i]);
}

/* One part of the allocation for each program. */
static int add_parts(const struct run_job *job, int parts, struct run_words *argv)
{
    const struct run_options *options = job->options;

    if (options->n_programs != parts || job->layout.hosts.n || options->nodes)
        return run_fail("the allocation is a heterogeneous job of %d parts: give as many programs, "
                        "and neither hosts nor nodes",
                        parts);
    for (int i = 0; i < parts; i++) {
        if (i)
            run_words_add(argv, ":");
        add_options(job, argv);
        pass(job, argv);
        run_words_addf(argv, "--het-group=%d", i);
        run_words_addf(argv, "--ntasks=%d",
                       options->programs[i].attention + options->programs[i].ffn);
        run_command_rank(job, i, argv);
    }
    return 0;
}

int run_command_slurm(const struct run_job *job, struct run_command *command)
{
    const struct run_options *options = job->options;
    struct run_words *argv = &command->argv;
    const char *parts = run_env_get(job->facts->environment, "SLURM_HET_SIZE");

    if (options->n_programs > 1 && parts && atoi(parts) > 1)
        return add_parts(job, atoi(parts), argv);
    add_options(job, argv);
    add_places(job, argv);
    pass(job, argv);
    run_words_addf(argv, "--ntasks=%d", job->layout.ranks);
    run_command_all(job, argv);
    return 0;
}
