/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts by ssh, without MPI: stepaf-run itself starts an ssh for each (ssh.c), and serves there
 * (serve.c). */
#include <string.h>

#include "command.h"
#include "fail.h"

int run_command_ssh(const struct run_job *job, struct run_command *command)
{
    const struct run_options *options = job->options;
    struct run_words *argv = &command->argv;

    if (!job->layout.hosts.n)
        return run_fail("--launcher ssh requires hosts: give --hosts or --hostfile");
    run_words_add(argv, "--ssh");
    run_command_hosts(&job->layout.hosts, RUN_HOSTS_COUNTS, argv);
    if (options->timeout_s)
        run_words_addf(argv, "-t%d", options->timeout_s);
    for (int i = 0; i < job->forward.n; i++)
        run_words_addf(argv, "-x%s", job->forward.word[i]);
    for (int i = 0; i < options->pass.n; i++)
        run_words_addf(argv, "-o%s", options->pass.word[i]);
    run_words_add(argv, "--");
    run_command_all(job, argv);
    return 0;
}
