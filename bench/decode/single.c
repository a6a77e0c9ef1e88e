/* SPDX-License-Identifier: Apache-2.0 */
#include "single.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <stepaf/types.h>

#include "attention_side.h"
#include "math_ops.h"
#include "report.h"
#include "text.h"
#include "threads.h"

/* All intermediate data. */
struct single {
    const struct options *options;
    struct reason *reason;
    struct job job;
    struct attention_weights *attention;
    struct ffn_weights *ffn;
    struct attention_side side;
    struct ffn_work *work;
    float *answer; /* [rows, hidden] */
    struct stats stats;
    int threads;
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Buffers that would lie in the library's memory otherwise. */
static int create_buffers(struct single *single, int max_rows)
{
    const struct model_config *config = &single->job.config;
    struct microbatch *mb = &single->side.microbatches[0];
    size_t rows = (size_t)max_rows;
    size_t hidden = rows * (size_t)config->hidden;
    size_t chosen = rows * (size_t)config->experts_chosen + 1;
    mb->hidden = malloc(hidden * sizeof(float));
    mb->ids = malloc(chosen * sizeof(int32_t));
    mb->weights = malloc(chosen * sizeof(float));
    single->answer = malloc(hidden * sizeof(float));
    if (!mb->hidden || !mb->ids || !mb->weights || !single->answer)
        return reason_no_memory(single->reason);
    return ffn_work_create(config, max_rows, &single->work, single->reason);
}

static int prepare(struct single *single, struct text_stream *stream)
{
    const struct options *options = single->options;
    struct job *job = &single->job;
    if (job_load(options, job, single->reason) || report_try(options->json, single->reason) ||
        attention_weights_load(job->model, &job->config, NULL, NULL, &single->attention,
                               single->reason) ||
        ffn_weights_load(job->model, &job->config, 0, 1, NULL, NULL, &single->ffn, single->reason))
        return -1;
    *stream = (struct text_stream){stdout, job->tokenizer, options->quiet ? -1 : 0};
    struct layout layout = {1, 1, job->sequences, options->chunk};
    struct sampling sampling = {options->temperature, options->seed, job->ignore_eos, text_on_token,
                                stream};
    if (attention_side_create(job, single->attention, &sampling, &layout, 0, &single->side,
                              single->reason) ||
        create_buffers(single, layout_max_rows(&layout)) ||
        stats_create(job->config.layers, (size_t)job->tokens, &single->stats, single->reason))
        return -1;
    single->threads = threads_choose(options->threads, 1);
    math_set_threads(single->threads);
    return 0;
}

static void run_layer(struct single *single, struct microbatch *mb, int layer)
{
    const struct model_config *config = &single->job.config;
    struct layer_stats *stats = &single->stats.layers[layer];
    struct ffn_input input = {mb->rows, config->experts_chosen, mb->hidden, mb->ids, mb->weights};
    int64_t begin = now_ns();
    microbatch_attend(mb, &single->side.model, layer);
    int64_t attended = now_ns();
    ffn_run(single->ffn, layer, &input, config->hidden, single->answer, single->work);
    math_add(mb->x, single->answer, (size_t)mb->rows * (size_t)config->hidden);
    if (!stats_steady(&single->stats, begin))
        return;
    stats->exchanges++;
    stats->attention_ns += attended - begin;
    stats->ffn_ns += now_ns() - attended;
}

static void run(struct single *single)
{
    struct microbatch *mb = &single->side.microbatches[0];
    stats_begin(&single->stats, 1, now_ns());
    for (;;) {
        int64_t begin = now_ns();
        if (microbatch_begin(mb, &single->side.model) == 0)
            break;
        if (mb->decoding && single->stats.prefilling)
            stats_past_prompts(&single->stats, begin);
        for (int layer = 0; layer < single->job.config.layers; layer++)
            run_layer(single, mb, layer);
        int tokens = microbatch_end(mb, &single->side.model);
        stats_step(&single->stats, mb->decoding, tokens, begin, now_ns());
    }
    single->stats.end_ns = now_ns();
}

static int report(struct single *single)
{
    const struct job *job = &single->job;
    struct summary summary;
    struct blob blob = {0};
    struct place place = {.role = STEPAF_ATTENTION,
                          .pid = getpid(),
                          .threads = single->threads,
                          .bytes_read = single->attention->bytes_read + single->ffn->bytes_read};
    gethostname(place.host, sizeof(place.host));
    if (summary_create(1, job->config.layers, job->sequences, &summary, single->reason))
        return -1;
    summary_put_attention(&blob, &place, &single->side, &single->stats);
    int result = blob.failed ? reason_no_memory(single->reason)
                             : summary_take(&summary, blob.bytes, blob.length, single->reason);
    if (result == 0) {
        summary_finish(&summary);
        if (single->options->verify)
            report_verify(stdout, &summary.verify);
        report_table(stdout, single->options, &summary);
        result = report_end(stdout, single->reason);
        if (single->options->json &&
            report_json(single->options->json, single->options, job, &summary, single->reason))
            result = -1;
        if (result == 0 && single->options->verify && !verify_passed(&summary.verify))
            result = reason_failed(single->reason, "not equal to the reference");
    }
    blob_free(&blob);
    summary_destroy(&summary);
    return result;
}

static void destroy(struct single *single)
{
    if (single->side.n_microbatches) {
        free(single->side.microbatches[0].hidden);
        free(single->side.microbatches[0].ids);
        free(single->side.microbatches[0].weights);
    }
    free(single->answer);
    ffn_work_destroy(single->work);
    stats_destroy(&single->stats);
    attention_side_destroy(&single->side);
    ffn_weights_free(single->ffn);
    attention_weights_free(single->attention);
    job_free(&single->job);
}

int single_run(const struct options *options)
{
    struct reason reason = {0};
    struct single single = {.options = options, .reason = &reason};
    struct text_stream stream;
    int result = prepare(&single, &stream);
    if (result == 0) {
        if (stream.sequence == 0)
            text_put_prompt(&stream, job_prompt(&single.job, 0));
        run(&single);
        result = report(&single);
    }
    destroy(&single);
    if (result)
        fprintf(stderr, "stepaf_decode: %s\n", reason.text);
    return result ? reason.code : CODE_OK;
}
