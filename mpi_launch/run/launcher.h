/* SPDX-License-Identifier: Apache-2.0 */
/* Which launcher is here. */
#ifndef RUN_LAUNCHER_H
#define RUN_LAUNCHER_H

#include "options.h"

enum run_launcher_kind { RUN_OPENMPI, RUN_HYDRA, RUN_INTEL, RUN_SLURM, RUN_SSH };

struct run_launcher {
    enum run_launcher_kind kind;
    char program[4096];
    char mpi[64];     /* Slurm: the plugin for srun's --mpi */
    char reason[256]; /* why this one, for people */
    char doubt[640];  /* "", or what --dry-run could not find out */
};

/* Find it as @a options and the environment say, by asking programs in PATH for their version.
 * -1 with a sentence if there is none. */
int run_launcher_find(const struct run_options *options, char *const *environment,
                      struct run_launcher *launcher_p);

/* Pick from what "srun --mpi=list" says the plugin that MPI programs of today need. -1 if none
 * fits; @a mpi_p has room for 64. Pure. */
int run_launcher_pick_mpi(const char *list, char *mpi_p);

#endif
