/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank of its node, and of the job, this process is: what launchers put into the
 * environment. */
#ifndef RUN_RANK_H
#define RUN_RANK_H

struct run_rank {
    int local;       /* within the node; -1: not known */
    int local_ranks; /* on the node; 0: not known */
    int world;       /* under srun, or by ssh; -1: not known */
};

/* Never fails: a value that is no number counts as not there. */
void run_rank_find(char *const *environment, struct run_rank *rank_p);

/* Entry @a index of a list such as "4(x2),3"; 0 if the list is bad or ends before that. */
int run_rank_tasks(const char *list, int index);

#endif
