/* SPDX-License-Identifier: Apache-2.0 */
#include "options_table.h"

/* One option: its name, key, argument and help. */
#define OPTION(name_, key_, argument_, help_) \
    {                                         \
        name_, key_, argument_, 0, help_, 0   \
    }
#define HEADING(text_, group_)          \
    {                                   \
        NULL, 0, NULL, 0, text_, group_ \
    }

const struct argp_option run_option_table[] = {
    HEADING("Ranks:", 1),
    OPTION("attn", 'a', "N", "attention ranks"),
    OPTION("ffn", 'f', "N", "FFN ranks"),
    OPTION("interleave", KEY_INTERLEAVE, NULL,
           "distribute the roles evenly instead of in two blocks"),
    OPTION("per-node", KEY_PER_NODE, NULL, "-a and -f are for each node"),
    HEADING("Where:", 2),
    OPTION("hosts", KEY_HOSTS, "H[:N],...", "hosts, and the number of ranks for each"),
    OPTION("hostfile", KEY_HOSTFILE, "FILE", "the same from a file: 'H', 'H:N' or 'H slots=N'"),
    OPTION("nodes", 'N', "N", "number of nodes to request from Slurm"),
    {"slurm", KEY_SLURM, "OPTIONS", OPTION_ARG_OPTIONAL,
     "start with srun, also without an allocation; options for srun, separated by blanks", 0},
    OPTION("launcher", KEY_LAUNCHER, "WORD",
           "auto, mpirun, openmpi, hydra, slurm, ssh, or the path of an mpirun (auto)"),
    OPTION("pass", KEY_PASS, "WORD",
           "one more word for the launcher, passed unchanged; repeatable"),
    HEADING("On each node:", 3),
    OPTION("bind", KEY_BIND, "WORD",
           "cores that a rank may run on: core (an equal share of them), numa, gpu (cores near its "
           "GPU), none, or auto: core if there are enough cores (auto)"),
    OPTION("device-per-rank", KEY_DEVICE_PER_RANK, NULL, "let each rank see one GPU only"),
    OPTION("oversubscribe", KEY_OVERSUBSCRIBE, NULL, "allow more ranks than cores"),
    HEADING("The job:", 4),
    OPTION("env", KEY_ENV, "NAME[=VALUE]",
           "a variable for all ranks; STEPAF_* are passed automatically"),
    OPTION("timeout", KEY_TIMEOUT, "S", "have the launcher end the job after S seconds"),
    OPTION("allow-root", KEY_ALLOW_ROOT, NULL, "start also as root"),
    HEADING("What is done:", 5),
    OPTION("dry-run", KEY_DRY_RUN, NULL, "print the command line only"),
    OPTION("verbose", 'v', NULL, "print the command line, and where each rank is bound"),
    {0}};
