/* SPDX-License-Identifier: Apache-2.0 */
/* The place of each rank: roles and groups as the library sees them, hosts, cores. */
#ifndef PERF_PLACE_H
#define PERF_PLACE_H

#include <limits.h>
#include <sched.h>

#include "job.h"
#include "options.h"

/* One rank, as gathered from all. */
struct perf_rank {
    char host[HOST_NAME_MAX + 1];
    char cores[40];   /* its affinity as a list: "0-3,8"; truncated with "..." */
    cpu_set_t cpus;   /* the same as a set */
    uint64_t node_id; /* equal for ranks that share memory and process ids */
    int pid;
    int role;  /* stepaf_role_t */
    int index; /* within its role's group */
};

struct perf_place {
    int rank, size; /* in the world */
    int role, index;
    int attn, ffn;   /* numbers of ranks */
    int *attn_world; /* world ranks by index */
    int *ffn_world;
    struct perf_rank *ranks; /* by world rank */
    int one_node;
    int crowded; /* more ranks than cores on this node: a waiting rank must yield */
};

/* The parameters of each init: the --split, or a default where the tool makes the ranks itself. */
void perf_place_params(const struct perf_options *options, stepaf_params_t *params_p);

/* Join the job once to learn roles and groups. Collective; -1 with a sentence on every rank, and
 * *exit_code_p then says whether the command line or the settings were at fault. */
int perf_place_open(struct perf_job *job, const struct perf_options *options,
                    struct perf_place *place_p, int *exit_code_p);

void perf_place_close(struct perf_place *place);

#endif
