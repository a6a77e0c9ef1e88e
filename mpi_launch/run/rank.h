/* SPDX-License-Identifier: Apache-2.0 */
/* This process's rank in its node and in the job, from the launchers' environment variables. */
#ifndef RUN_RANK_H
#define RUN_RANK_H

struct run_rank {
    int local;       /* within the node; -1: not known */
    int local_ranks; /* on the node; 0: not known */
    int world;       /* under srun, or by ssh; -1: not known */
};

/* Find the rank. Never fails: a value that is not a number counts as absent. */
void run_rank_find(char *const *environment, struct run_rank *rank_p);

/* Return entry @a index of a list such as "4(x2),3"; 0 if the list is bad or shorter. */
int run_rank_tasks(const char *list, int index);

#endif
