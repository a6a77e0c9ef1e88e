/* SPDX-License-Identifier: Apache-2.0 */
#include "rank.h"

#include <stddef.h>
#include <stdlib.h>

#include "words.h"

/* Pairs of variables: rank within the node, ranks on the node. Launchers that can run inside
 * another launcher's job come first, since the outer launcher's variables are set as well. */
static const char *const pairs[][2] = {
    {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, /* Hydra, Intel MPI */
    {"LOCAL_RANK", "LOCAL_WORLD_SIZE"},     /* stepaf-run by ssh, torchrun */
};

enum { NUMBER_MAX = 1 << 24 };

/* Parse the number at *text and advance *text; -1 if there is none. */
static int take_number(const char **text)
{
    int number = 0;

    if (**text < '0' || **text > '9')
        return -1;
    for (; **text >= '0' && **text <= '9'; (*text)++) {
        number = number * 10 + (**text - '0');
        if (number > NUMBER_MAX)
            return -1;
    }
    return number;
}

static int get_number(char *const *environment, const char *name)
{
    const char *text = run_env_get(environment, name);
    int number = text ? take_number(&text) : -1;

    return text && *text ? -1 : number;
}

int run_rank_tasks(const char *list, int index)
{
    while (index >= 0) {
        int tasks = take_number(&list);
        int nodes = 1;
        if (tasks < 1)
            return 0;
        if (list[0] == '(' && list[1] == 'x') {
            list += 2;
            nodes = take_number(&list);
            if (nodes < 1 || *list++ != ')')
                return 0;
        }
        if (index < nodes)
            return *list == ',' || *list == '\0' ? tasks : 0;
        index -= nodes;
        if (*list++ != ',')
            return 0;
    }
    return 0;
}

/* srun gives the number of tasks on each node of the step, in the order of the nodes. */
static void find_slurm(char *const *environment, struct run_rank *rank_p)
{
    const char *tasks = run_env_get(environment, "SLURM_STEP_TASKS_PER_NODE");
    int node = get_number(environment, "SLURM_NODEID");

    if (!tasks)
        tasks = run_env_get(environment, "SLURM_TASKS_PER_NODE");
    rank_p->local = get_number(environment, "SLURM_LOCALID");
    if (tasks && node >= 0)
        rank_p->local_ranks = run_rank_tasks(tasks, node);
}

void run_rank_find(char *const *environment, struct run_rank *rank_p)
{
    static const char *const worlds[] = {"OMPI_COMM_WORLD_RANK", "STEPAF_RANK", "SLURM_PROCID"};

    *rank_p = (struct run_rank){.local = -1, .world = -1};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds) && rank_p->world < 0; i++)
        rank_p->world = get_number(environment, worlds[i]);
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs) && rank_p->local < 0; i++) {
        rank_p->local = get_number(environment, pairs[i][0]);
        rank_p->local_ranks = get_number(environment, pairs[i][1]);
    }
    if (rank_p->local < 0)
        find_slurm(environment, rank_p);
    if (rank_p->local < 0 || rank_p->local >= rank_p->local_ranks) {
        rank_p->local = -1;
        rank_p->local_ranks = 0;
    }
}
