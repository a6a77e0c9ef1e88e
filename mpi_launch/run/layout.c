/* SPDX-License-Identifier: Apache-2.0 */
/* The number of ranks, and their placement on hosts. */
#include "layout.h"

#include <stdlib.h>

#include "fail.h"

/* Return the number of nodes if no hosts are named. 0: unknown; -1 with a sentence. */
static int count_nodes(const struct run_options *options, const struct run_launcher *launcher,
                       char *const *environment)
{
    const char *nodes = run_env_get(environment, "SLURM_JOB_NUM_NODES");
    int is_in_job = run_env_get(environment, "SLURM_JOB_ID") != NULL;

    if (options->nodes && launcher->kind != RUN_SLURM)
        return run_fail(
            "--nodes is for Slurm, but the launcher here is %s: name the nodes with --hosts",
            launcher->program);
    if (options->nodes)
        return options->nodes;
    if (!options->per_node)
        return 0;
    if (is_in_job && nodes && atoi(nodes) > 0)
        return atoi(nodes);
    if (launcher->kind == RUN_SLURM)
        return run_fail("--per-node requires the number of nodes: give --nodes");
    return 1;
}

static int count_ranks(const struct run_options *options)
{
    int ranks = 0;

    for (int i = 0; i < options->n_programs; i++)
        ranks += options->programs[i].attention + options->programs[i].ffn;
    return ranks;
}

int run_layout_make(const struct run_options *options, const struct run_launcher *launcher,
                    char *const *environment, struct run_layout *layout_p)
{
    struct run_layout layout = {.ranks = count_ranks(options)};
    int rc = 0;

    if (options->hosts)
        rc = run_hosts_parse(options->hosts, &layout.hosts);
    else if (options->hostfile)
        rc = run_hosts_read(options->hostfile, &layout.hosts);
    if (rc != 0)
        return -1;
    layout.nodes = layout.hosts.n;
    if (layout.nodes == 0 && (layout.nodes = count_nodes(options, launcher, environment)) < 0)
        return -1;
    if (options->per_node) {
        layout.per_node = layout.ranks;
        if (layout.ranks > RUN_RANKS_MAX / layout.nodes) {
            run_fail_set("%d ranks on each of %d nodes are more than %d", layout.ranks,
                         layout.nodes, RUN_RANKS_MAX);
            goto err_hosts;
        }
        layout.ranks *= layout.nodes;
    }
    if (layout.hosts.n && run_hosts_deal(&layout.hosts, layout.ranks, layout.per_node) != 0)
        goto err_hosts;
    *layout_p = layout;
    return 0;

err_hosts:
    run_hosts_free(&layout.hosts);
    return -1;
}
