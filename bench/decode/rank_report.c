/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "agree.h"
#include "rank.h"
#include "report.h"
#include "trace_file.h"

int rank_run(struct rank *rank, struct trouble *trouble_p)
{
    *trouble_p = (struct trouble){.lost = -1};
    if (!rank_is_attention(rank))
        return ffn_rank_run(&rank->ffn, trouble_p);
    if (rank->place.index == 0 && rank->text.sequence == 0)
        text_put_prompt(&rank->text, job_prompt(&rank->job, 0));
    return attention_rank_run(&rank->attention, trouble_p);
}

static int show(const struct rank *rank, const struct summary *summary)
{
    const struct options *options = rank->options;
    if (options->verify)
        report_verify(stdout, &summary->verify);
    report_table(stdout, options, summary);
    report_map(stdout, summary);
    int result = report_end(stdout, rank->reason);
    if (options->json && report_json(options->json, options, &rank->job, summary, rank->reason))
        return -1;
    if (result)
        return -1;
    if (options->verify && !verify_passed(&summary->verify))
        return reason_failed(rank->reason, "not equal to the reference");
    return 0;
}

static int summarize(const struct rank *rank, const char *all, const size_t *offsets)
{
    struct summary summary;
    int n = rank->launch->channel.size;
    int result = 0;
    if (summary_create(n, rank->job.config.layers, rank->job.sequences, &summary, rank->reason))
        return -1;
    for (int i = 0; i < n && result == 0; i++)
        result =
            summary_take(&summary, all + offsets[i], offsets[i + 1] - offsets[i], rank->reason);
    summary_finish(&summary);
    if (result == 0)
        result = show(rank, &summary);
    summary_destroy(&summary);
    return result;
}

/* Gather *blob from all ranks, and end it. */
static int gather(const struct rank *rank, struct blob *blob, void **all_p, size_t **offsets_p)
{
    int result = blob->failed
                     ? reason_no_memory(rank->reason)
                     : agree_gather(rank->launch, blob->bytes, blob->length,
                                    rank->options->timeout_us, all_p, offsets_p, rank->reason);
    blob_free(blob);
    return result;
}

static int report_results(const struct rank *rank)
{
    struct blob blob = {0};
    size_t *offsets;
    void *all;
    if (rank_is_attention(rank))
        summary_put_attention(&blob, &rank->place, &rank->side, &rank->attention.stats);
    else
        summary_put_ffn(&blob, &rank->place, &rank->ffn.stats);
    if (gather(rank, &blob, &all, &offsets))
        return -1;
    int result = rank->place.world == 0 ? summarize(rank, all, offsets) : 0;
    free(all);
    free(offsets);
    return result;
}

static int report_trace(const struct rank *rank)
{
    struct blob blob = {0};
    size_t *offsets;
    void *all;
    const struct spans *spans = rank_is_attention(rank) ? &rank->attention.spans : &rank->ffn.spans;
    if (trace_put(rank->ctx, &rank->place, spans, &blob, rank->reason)) {
        blob_free(&blob);
        return -1;
    }
    if (gather(rank, &blob, &all, &offsets))
        return -1;
    int result = 0;
    if (rank->place.world == 0)
        result = trace_write(rank->options->trace, all, offsets, rank->launch->channel.size,
                             rank->reason);
    free(all);
    free(offsets);
    return result;
}

/* The report on transports holds only if the tensors went over them. */
static int check_links(struct rank *rank)
{
    if (stepaf_map_check(rank->ctx, rank->options->timeout_us, NULL) == STEPAF_OK)
        return 0;
    return reason_failed(rank->reason, "links: %s", stepaf_last_error()->text);
}

/* The part of this rank alone. */
static int report_alone(struct rank *rank)
{
    struct blob blob = {0};
    struct summary summary;
    if (!rank_is_attention(rank))
        return 0;
    if (summary_create(1, rank->job.config.layers, rank->job.sequences, &summary, rank->reason))
        return -1;
    summary_put_attention(&blob, &rank->place, &rank->side, &rank->attention.stats);
    int result = blob.failed ? reason_no_memory(rank->reason)
                             : summary_take(&summary, blob.bytes, blob.length, rank->reason);
    blob_free(&blob);
    summary_finish(&summary);
    if (result == 0) {
        printf("\nattention rank %d, by itself, since FFN ranks were lost:\n", rank->place.index);
        if (rank->options->verify)
            report_verify(stdout, &summary.verify);
        report_steps(stdout, &summary);
        report_replicas(stdout, rank->attention.replicas);
        result = report_end(stdout, rank->reason);
    }
    if (result == 0 && rank->options->verify && summary.verify.sequences &&
        !verify_passed(&summary.verify))
        result = reason_failed(rank->reason, "not equal to the reference");
    summary_destroy(&summary);
    return result;
}

static int report_together(struct rank *rank)
{
    int result = check_links(rank);
    if (agree(rank->launch, result, 0, rank->options->timeout_us, rank->reason))
        return -1;
    result = report_results(rank);
    if (agree(rank->launch, result, 0, rank->options->timeout_us, rank->reason))
        return -1;
    if (!rank->options->trace)
        return 0;
    result = report_trace(rank);
    return agree(rank->launch, result, 0, rank->options->timeout_us, rank->reason);
}

int rank_report(struct rank *rank)
{
    /* Where an FFN rank was replaced, the job's channel has a hole. All remaining ranks know of
     * it. */
    int is_whole = !rank->launch->returns && stepaf_epoch(rank->ctx) == 1;
    int result = is_whole ? report_together(rank) : 0;
    /* Or it dies only now. */
    if (is_whole && !(result && rank->launch->broken && rank->options->replicas.n > 1))
        return result;
    rank->launch->broken = 1;
    return report_alone(rank);
}

void rank_leave(struct rank *rank)
{
    if (rank->ctx) {
        stepaf_finalize(rank->ctx);
        if (rank_is_attention(rank) && rank->attention.side)
            attention_rank_destroy(&rank->attention);
        ffn_rank_destroy(&rank->ffn);
    }
    attention_side_destroy(&rank->side);
    attention_weights_free(rank->attention_weights);
    ffn_weights_free(rank->ffn_weights);
    job_free(&rank->job);
}
