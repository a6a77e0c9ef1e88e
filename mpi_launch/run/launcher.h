/* SPDX-License-Identifier: Apache-2.0 */
/* Detection of the launcher. */
#ifndef RUN_LAUNCHER_H
#define RUN_LAUNCHER_H

#include "options.h"

enum run_launcher_kind { RUN_OPENMPI, RUN_HYDRA, RUN_INTEL, RUN_SLURM, RUN_SSH };

struct run_launcher {
    enum run_launcher_kind kind;
    char program[4096];
    char mpi[64];     /* Slurm: the plugin for srun's --mpi */
    char reason[256]; /* why this launcher, for people */
    char doubt[640];  /* "", or what --dry-run could not determine */
};

/* Find the launcher from @a options and the environment, by asking programs in PATH for their
 * version. Returns -1 with a sentence if there is none. */
int run_launcher_find(const struct run_options *options, char *const *environment,
                      struct run_launcher *launcher_p);

/* Pick the plugin that current MPI programs need from the output of "srun --mpi=list". Returns
 * -1 if none fits; @a mpi_p has space for 64 bytes. Pure. */
int run_launcher_pick_mpi(const char *list, char *mpi_p);

#endif
