/* SPDX-License-Identifier: Apache-2.0 */
/* The command line that starts a job. Nothing here runs anything, so that tests can see all of it
 * without a launcher. */
#ifndef RUN_COMMAND_H
#define RUN_COMMAND_H

#include "launcher.h"
#include "layout.h"
#include "options.h"

/* What is known of this place. */
struct run_facts {
    const char *self;         /* absolute name of stepaf-run, to be found on every node */
    char *const *environment; /* of this process */
    int cores;                /* that this process may use */
    int is_root;
};

struct run_command {
    struct run_words env; /* NAME=VALUE, in addition to what is there */
    struct run_words argv;
};

/* Make it. -1 with a sentence; *command_p is empty then. */
int run_command_make(const struct run_options *options, const struct run_launcher *launcher,
                     const struct run_facts *facts, struct run_command *command_p);

/* Write it as a line for a POSIX shell, in which a secret is "...". */
void run_command_print(const struct run_command *command, void *stream);

void run_command_free(struct run_command *command);

/* What the launchers' own files need: their lines, from what has been found out. They append to
 * command->argv, and to command->env. -1 with a sentence. */
struct run_job {
    const struct run_options *options;
    const struct run_launcher *launcher;
    const struct run_facts *facts;
    struct run_layout layout;
    struct run_words forward; /* names of variables that have to reach all ranks */
};

int run_command_openmpi(const struct run_job *job, struct run_command *command);
int run_command_hydra(const struct run_job *job, struct run_command *command);
int run_command_slurm(const struct run_job *job, struct run_command *command);
int run_command_ssh(const struct run_job *job, struct run_command *command);

/* Append what a rank of program @a index runs: the program, behind stepaf-run where something is
 * left to be done on the rank. */
void run_command_rank(const struct run_job *job, int index, struct run_words *argv);

/* Append what all ranks run alike: of several programs each rank takes its own by its number. */
void run_command_all(const struct run_job *job, struct run_words *argv);

/* Append the hosts as one word: "h1,h2", "h1:2,h2:1" or "h1,h1,h2". */
enum run_hosts_form { RUN_HOSTS_NAMES, RUN_HOSTS_COUNTS, RUN_HOSTS_REPEATED };
void run_command_hosts(const struct run_hosts *hosts, enum run_hosts_form form,
                       struct run_words *argv);

#endif
