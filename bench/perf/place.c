/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cores.h"
#include "fail.h"
#include "kernel.h"

void perf_place_params(const struct perf_options *options, stepaf_params_t *params_p)
{
    static char by_halves[48];
    unsigned n_ranks =
        options->job.listen > 0 || options->job.connect != NULL ? 2 : (unsigned)options->job.procs;

    *params_p = (stepaf_params_t){0};
    if (options->job.split != NULL) {
        params_p->field_mask = STEPAF_PARAM_SPLIT;
        params_p->split = options->job.split;
    } else if (n_ranks > 0 && getenv("STEPAF_SPLIT") == NULL && getenv("STEPAF_ROLE") == NULL) {
        snprintf(by_halves, sizeof(by_halves), "attn=%u,ffn=%u", (n_ranks + 1) / 2, n_ranks / 2);
        params_p->field_mask = STEPAF_PARAM_SPLIT;
        params_p->split = by_halves;
    }
}

static void describe_self(stepaf_context_h ctx, struct perf_rank *rank)
{
    memset(rank, 0, sizeof(*rank));
    if (gethostname(rank->host, sizeof(rank->host)) != 0)
        snprintf(rank->host, sizeof(rank->host), "?");
    if (sched_getaffinity(0, sizeof(rank->cpus), &rank->cpus) != 0)
        CPU_ZERO(&rank->cpus);
    perf_cores_list(&rank->cpus, rank->cores, sizeof(rank->cores));
    /* Ranks with the same number can reach each other's files under /proc, and the library takes
     * them for ranks of one node; the number includes the host name, as launchers do. */
    rank->node_id = perf_kernel_hash(perf_kernel_id("pid"), rank->host);
    rank->pid = (int)getpid();
    rank->role = (int)stepaf_role(ctx);
    rank->index = stepaf_rank(ctx, rank->role == STEPAF_ATTENTION ? STEPAF_GROUP_ATTENTION
                                                                  : STEPAF_GROUP_FFN);
}

/* Whether there are more ranks on this node than cores that any of them may use. */
static int is_crowded(const struct perf_place *place)
{
    const struct perf_rank *self = &place->ranks[place->rank];
    cpu_set_t all;
    int ranks = 0;

    CPU_ZERO(&all);
    for (int i = 0; i < place->size; i++) {
        if (place->ranks[i].node_id != self->node_id)
            continue;
        ranks++;
        CPU_OR(&all, &all, &place->ranks[i].cpus);
    }
    return ranks > CPU_COUNT(&all);
}

static int list_groups(struct perf_place *place)
{
    place->attn_world = calloc((size_t)place->size, sizeof(int));
    place->ffn_world = calloc((size_t)place->size, sizeof(int));
    if (place->attn_world == NULL || place->ffn_world == NULL)
        return perf_fail("out of memory");
    place->one_node = 1;
    for (int i = 0; i < place->size; i++) {
        const struct perf_rank *rank = &place->ranks[i];
        int attention = rank->role == STEPAF_ATTENTION;

        if (rank->index < 0 || rank->index >= place->size)
            return perf_fail("the library gives rank %d the index %d in its group", i, rank->index);
        (attention ? place->attn_world : place->ffn_world)[rank->index] = i;
        place->attn += attention;
        place->ffn += !attention;
        place->one_node &= rank->node_id == place->ranks[0].node_id;
    }
    place->role = place->ranks[place->rank].role;
    place->index = place->ranks[place->rank].index;
    place->crowded = is_crowded(place);
    return 0;
}

/* Rows and floors use a full mesh: every attention rank with every FFN rank. */
static int has_lanes(stepaf_context_h ctx)
{
    stepaf_group_t others =
        stepaf_role(ctx) == STEPAF_FFN ? STEPAF_GROUP_ATTENTION : STEPAF_GROUP_FFN;

    return stepaf_n_peers(ctx) != stepaf_size(ctx, others);
}

/* Init, and agree on the result. */
static int join(struct perf_job *job, const struct perf_options *options, stepaf_context_h *ctx_p,
                int *exit_code_p)
{
    stepaf_params_t params;
    stepaf_status_t status;
    double usage;
    int result = 0, is_usage;

    perf_place_params(options, &params);
    status = job->join(job, &params, ctx_p);
    is_usage = status == STEPAF_ERR_SPLIT || status == STEPAF_ERR_SETTING;
    if (status != STEPAF_OK) {
        result = perf_fail_status(status, "stepaf_init");
    } else if (has_lanes(*ctx_p)) {
        result = perf_fail("it measures a full mesh: unset STEPAF_MESH=lane");
        is_usage = 1;
    }
    if (perf_job_agree(job, result) == 0)
        return 0;
    if (perf_job_max(job, is_usage, &usage) == 0)
        *exit_code_p = usage > 0.0 ? PERF_EXIT_USAGE : PERF_EXIT_FAILED;
    return -1;
}

int perf_place_open(struct perf_job *job, const struct perf_options *options,
                    struct perf_place *place_p, int *exit_code_p)
{
    struct perf_place place = {.rank = job->channel.rank, .size = job->channel.size};
    stepaf_context_h ctx = NULL;
    struct perf_rank self;
    size_t *offsets;
    void *all;

    *exit_code_p = PERF_EXIT_FAILED;
    if (join(job, options, &ctx, exit_code_p) != 0)
        goto err_finalize;
    describe_self(ctx, &self);
    if (perf_job_gather(job, &self, sizeof(self), &all, &offsets) != 0)
        goto err_finalize;
    free(offsets);
    place.ranks = all;
    if (list_groups(&place) != 0)
        goto err_close;
    stepaf_finalize(ctx);
    *place_p = place;
    return 0;

err_close:
    perf_place_close(&place);
err_finalize:
    stepaf_finalize(ctx);
    return -1;
}

void perf_place_close(struct perf_place *place)
{
    free(place->attn_world);
    free(place->ffn_world);
    free(place->ranks);
    memset(place, 0, sizeof(*place));
}
