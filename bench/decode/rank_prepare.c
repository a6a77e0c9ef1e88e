/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agree.h"
#include "rank.h"

/* Rank 0 shows its progress; the others have about as much to read. */
static void show_progress(int done, int total, void *arg)
{
    const struct rank *rank = arg;
    if (rank->place.world != 0 || !(rank->options->progress || isatty(STDERR_FILENO)))
        return;
    fprintf(stderr, "\rloading weights: %3d %%%s", done * 100 / total, done == total ? "\n" : "");
    fflush(stderr);
}

static int load_weights(struct rank *rank)
{
    struct job *job = &rank->job;
    if (rank_is_attention(rank)) {
        if (attention_weights_load(job->model, &job->config, show_progress, rank,
                                   &rank->attention_weights, rank->reason))
            return -1;
        rank->place.bytes_read = rank->attention_weights->bytes_read;
        return 0;
    }
    int ffn_ranks = stepaf_size(rank->ctx, STEPAF_GROUP_FFN), n = rank->options->replicas.n;
    if (ffn_weights_load(job->model, &job->config, replicas_part(ffn_ranks, n, rank->place.index),
                         ffn_ranks / n, show_progress, rank, &rank->ffn_weights, rank->reason))
        return -1;
    rank->place.bytes_read = rank->ffn_weights->bytes_read;
    return 0;
}

static int prepare_attention(struct rank *rank, struct trouble *trouble)
{
    const struct options *options = rank->options;
    struct sampling sampling = {options->temperature, options->seed, rank->job.ignore_eos,
                                text_on_token, &rank->text};
    rank->text = (struct text_stream){stdout, rank->job.tokenizer, options->quiet ? -1 : 0};
    if (attention_side_create(&rank->job, rank->attention_weights, &sampling, &rank->layout,
                              rank->place.index, &rank->side, &trouble->reason))
        return -1;
    return attention_rank_create(rank->ctx, &rank->side, &rank->layout, options, &rank->attention,
                                 trouble);
}

static int prepare_role(struct rank *rank)
{
    struct trouble trouble = {.lost = -1};
    int result;
    stepaf_status_t status = wire_declare(rank->ctx, &rank->job.config, &rank->layout);
    if (status != STEPAF_OK)
        result = trouble_status(rank->ctx, status, "declaring keys", 0, &trouble);
    else if (rank_is_attention(rank))
        result = prepare_attention(rank, &trouble);
    else
        result = ffn_rank_create(rank->ctx, &rank->job.config, rank->ffn_weights, &rank->layout,
                                 rank->options, &rank->ffn, &trouble);
    if (rank->launch->returns || rank->place.index)
        rank->ffn.kill_after = 0; /* that is for the first process of the first one */
    if (result)
        *rank->reason = trouble.reason;
    return result;
}

static int write_address(const struct rank *rank, const char *address)
{
    const char *path = rank->options->replicas.address_file;
    FILE *file = fopen(path, "w");
    if (!file)
        return reason_bad_input(rank->reason, "%s: cannot be written: %s", path, strerror(errno));
    fprintf(file, "%s\n", address);
    if (fclose(file))
        return reason_failed(rank->reason, "%s: %s", path, strerror(errno));
    return 0;
}

/* For the process that restarts a lost rank. The first attention rank announces it: without that
 * rank there is no job. */
static int tell_address(const struct rank *rank)
{
    char address[LAUNCH_ADDRESS_BYTES] = "";
    int has_file = rank->options->replicas.address_file != NULL;
    if (rank->options->replicas.n == 1 || !rank_is_attention(rank) || rank->place.index ||
        !(has_file || rank->launch->address))
        return 0;
    if (stepaf_members_address(rank->ctx, address, sizeof(address)) != STEPAF_OK)
        return reason_failed(rank->reason, "where members can be called: %s",
                             stepaf_last_error()->text);
    if (rank->launch->address)
        memcpy(rank->launch->address, address, sizeof(address));
    return has_file ? write_address(rank, address) : 0;
}

static int commit(struct rank *rank)
{
    stepaf_status_t status = stepaf_commit(rank->ctx);
    if (status == STEPAF_OK)
        return tell_address(rank);
    return reason_failed(rank->reason, "commit: %s", stepaf_last_error()->text);
}

/* List how the ranks of the other role are reached: "FFN 0-3: shm", or one by one. */
static void name_transports(struct rank *rank)
{
    struct place *place = &rank->place;
    int attention = rank_is_attention(rank);
    int n = stepaf_size(rank->ctx, attention ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION);
    size_t used = 0;
    for (int first = 0; first < n && used < sizeof(place->transports);) {
        const char *name = stepaf_transport_name(rank->ctx, first);
        int last = first;
        while (last + 1 < n && strcmp(stepaf_transport_name(rank->ctx, last + 1), name) == 0)
            last++;
        char range[32];
        if (last > first)
            snprintf(range, sizeof(range), "%d-%d", first, last);
        else
            snprintf(range, sizeof(range), "%d", first);
        used += (size_t)snprintf(place->transports + used, sizeof(place->transports) - used,
                                 "%s%s %s: %s", first ? ", " : "", attention ? "FFN" : "attention",
                                 range, name);
        first = last + 1;
    }
}

int rank_prepare(struct rank *rank)
{
    const struct options *options = rank->options;
    rank->layout = (struct layout){stepaf_size(rank->ctx, STEPAF_GROUP_ATTENTION),
                                   options->microbatches, rank->job.sequences, options->chunk};
    int ffn_ranks = stepaf_size(rank->ctx, STEPAF_GROUP_FFN);
    int result = 0;
    if (ffn_ranks % options->replicas.n)
        result = reason_bad_input(rank->reason, "%d FFN ranks cannot have each expert %d times",
                                  ffn_ranks, options->replicas.n);
    if (result == 0)
        result = model_config_check_parts(&rank->job.config, ffn_ranks / options->replicas.n,
                                          rank->reason);
    if (result == 0)
        result = load_weights(rank);
    if (agree(rank->launch, result, job_digest(&rank->job, options), options->load_timeout_us,
              rank->reason))
        return -1;
    result = prepare_role(rank);
    if (agree(rank->launch, result, 0, options->timeout_us, rank->reason))
        return -1;
    result = commit(rank);
    if (agree(rank->launch, result, 0, options->timeout_us, rank->reason))
        return -1;
    name_transports(rank);
    return 0;
}
