/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agree.h"
#include "math_ops.h"
#include "rank.h"
#include "threads.h"

/* Whether some rank is of another MPMD program than the first; the programs are then the roles. */
static int has_programs(const struct rank *rank, int *has_p)
{
    struct launch *launch = rank->launch;
    void *all;
    size_t *offsets;
    if (agree_gather(launch, &launch->channel.app_number, sizeof(int), rank->options->timeout_us,
                     &all, &offsets, rank->reason))
        return -1;
    *has_p = 0;
    if (offsets[launch->channel.size] == (size_t)launch->channel.size * sizeof(int))
        for (int i = 0; i < launch->channel.size; i++)
            *has_p |= ((const int *)all)[i] > 0;
    free(all);
    free(offsets);
    return 0;
}

/* The requested split; by default half of the ranks for each role. */
static int choose_split(const struct rank *rank, char *text, size_t capacity,
                        stepaf_params_t *params_p)
{
    int has = 0;
    int size = rank->launch->channel.size;
    *params_p = (stepaf_params_t){0};
    if (rank->options->split) {
        params_p->field_mask = STEPAF_PARAM_SPLIT;
        params_p->split = rank->options->split;
        return 0;
    }
    if (size < 2)
        return reason_bad_input(rank->reason,
                                "one rank cannot be both attention and FFN: start "
                                "several with mpirun -n N or --procs N, or use --single");
    if (!rank->launch->returns && has_programs(rank, &has))
        return -1;
    if (has || getenv("STEPAF_SPLIT") || getenv("STEPAF_ROLE"))
        return 0;
    snprintf(text, capacity, "attn=%d,ffn=%d", size - size / 2, size / 2);
    params_p->field_mask = STEPAF_PARAM_SPLIT;
    params_p->split = text;
    return 0;
}

/* Failures of init that the user can fix. */
static int is_bad_input(stepaf_status_t status)
{
    return status == STEPAF_ERR_INVALID || status == STEPAF_ERR_SPLIT ||
           status == STEPAF_ERR_SETTING || status == STEPAF_ERR_MISMATCH;
}

/* Each attention rank needs every FFN rank: a layer's weights are distributed over all of them. */
static int refuse_lanes(const struct rank *rank)
{
    stepaf_group_t others =
        stepaf_role(rank->ctx) == STEPAF_FFN ? STEPAF_GROUP_ATTENTION : STEPAF_GROUP_FFN;
    if (stepaf_n_peers(rank->ctx) == stepaf_size(rank->ctx, others))
        return 0;
    return reason_bad_input(rank->reason, "each attention rank needs every FFN rank, which holds a "
                                          "share of each layer: unset STEPAF_MESH=lane");
}

static int join_library(struct rank *rank)
{
    char split[64];
    stepaf_params_t params;
    if (rank->options->trace)
        setenv("STEPAF_TRACE_RECORDS", "65536", 0);
    if (choose_split(rank, split, sizeof(split), &params))
        return -1;
    stepaf_status_t status = rank->launch->join(rank->launch, &params, &rank->ctx);
    if (status == STEPAF_OK)
        return refuse_lanes(rank);
    rank->ctx = NULL;
    reason_failed(rank->reason, "%s", stepaf_last_error()->text);
    if (is_bad_input(status))
        rank->reason->code = CODE_BAD_INPUT;
    return -1;
}

/* Ranks on this host. */
static int count_here(const struct rank *rank, int *here_p)
{
    const struct place *place = &rank->place;
    void *all;
    size_t *offsets;
    if (agree_gather(rank->launch, place, sizeof(*place), rank->options->timeout_us, &all, &offsets,
                     rank->reason))
        return -1;
    for (int i = 0; i < rank->launch->channel.size; i++) {
        struct place other;
        memcpy(&other, (char *)all + offsets[i], sizeof(other));
        *here_p += strncmp(other.host, place->host, sizeof(place->host)) == 0;
    }
    free(all);
    free(offsets);
    return 0;
}

/* Learn where all ranks are, and derive the number of threads for this one. */
static int find_place(struct rank *rank)
{
    struct place *place = &rank->place;
    int is_ffn = stepaf_role(rank->ctx) == STEPAF_FFN;
    char name[16];
    *place = (struct place){
        .world = rank->launch->channel.rank,
        .role = is_ffn ? STEPAF_FFN : STEPAF_ATTENTION,
        .index = stepaf_rank(rank->ctx, is_ffn ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION),
        .pid = getpid()};
    gethostname(place->host, sizeof(place->host));
    snprintf(name, sizeof(name), "stepaf-%s%d", is_ffn ? "ffn" : "attn", place->index);
    prctl(PR_SET_NAME, name);
    int here = rank->launch->returns ? rank->launch->channel.size : 0; /* the most there can be */
    if (!here && count_here(rank, &here))
        return -1;
    place->crowded = here > threads_cores();
    place->threads = threads_choose(rank->options->threads, here);
    math_set_threads(place->threads);
    return 0;
}

int rank_join(struct rank *rank)
{
    int result = join_library(rank);
    if (agree(rank->launch, result, 0, rank->options->timeout_us, rank->reason))
        return -1;
    result = find_place(rank);
    return agree(rank->launch, result, 0, rank->options->timeout_us, rank->reason);
}
