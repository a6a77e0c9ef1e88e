/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/types.h>

#include "report.h"

static json_t *pack_layer(const struct layer_stats *stats)
{
    double scale = stats->exchanges ? 1e-3 / (double)stats->exchanges : 0;
    return json_pack(
        "{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "exchanges", (json_int_t)stats->exchanges,
        "attention_us", (double)stats->attention_ns * scale, "a2f_us",
        (double)stats->a2f_ns * scale, "queue_us", (double)stats->queue_ns * scale, "ffn_us",
        (double)stats->ffn_ns * scale, "f2a_us", (double)stats->f2a_ns * scale, "waiting_us",
        (double)stats->wait_ns * scale, "round_trip_us", (double)stats->round_trip_ns * scale);
}

static json_t *pack_layers(const struct summary *summary)
{
    json_t *array = json_array();
    for (int i = 0; i < summary->n_layers; i++)
        json_array_append_new(array, pack_layer(&summary->layers[i]));
    return array;
}

static json_t *pack_ranks(const struct summary *summary)
{
    json_t *array = json_array();
    for (int i = 0; i < summary->n_ranks; i++) {
        const struct place *place = &summary->ranks[i].place;
        const struct ffn_stats *ffn = &summary->ranks[i].ffn;
        int is_ffn = place->role != STEPAF_ATTENTION;
        json_t *rank =
            json_pack("{s:i, s:s, s:i, s:s, s:i, s:i, s:I, s:s}", "rank", place->world, "role",
                      is_ffn ? "ffn" : "attention", "index", place->index, "host", place->host,
                      "pid", place->pid, "threads", place->threads, "weight_bytes",
                      (json_int_t)place->bytes_read, "reaches", place->transports);
        if (is_ffn)
            json_object_set_new(rank, "ffn",
                                json_pack("{s:I, s:I, s:f, s:f}", "batches",
                                          (json_int_t)ffn->batches, "rows", (json_int_t)ffn->rows,
                                          "compute_s", (double)ffn->compute_ns * 1e-9, "library_s",
                                          (double)ffn->library_ns * 1e-9));
        json_array_append_new(array, rank);
    }
    return array;
}

static json_t *pack_ids(const int *ids, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(array, json_integer(ids[i]));
    return array;
}

static json_t *pack_sequences(const struct summary *summary)
{
    json_t *array = json_array();
    for (int i = 0; i < summary->n_sequences; i++) {
        const struct summary_sequence *sequence = &summary->sequences[i];
        int n = sequence->prompt_count;
        json_array_append_new(array, json_pack("{s:o, s:o}", "prompt_ids",
                                               pack_ids(sequence->ids, n), "continuation_ids",
                                               pack_ids(sequence->ids + n, sequence->count - n)));
    }
    return array;
}

/* JSON has no word for what is not finite. */
static json_t *pack_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Nor for bytes that are not UTF-8, as half a character at the end of a sentence, or a path's. */
static json_t *pack_text(const char *text)
{
    json_t *value = json_string(text);
    char *plain = value ? NULL : strdup(text);
    for (char *c = plain; c && *c; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    if (plain)
        value = json_string(plain);
    free(plain);
    return value;
}

static json_t *pack_verify(const struct verify_result *verify)
{
    return json_pack(
        "{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "passed",
        verify_passed(verify), "sequences", (json_int_t)verify->sequences, "sequences_equal",
        (json_int_t)verify->sequences_equal, "tokens", (json_int_t)verify->tokens, "tokens_equal",
        (json_int_t)verify->tokens_equal, "tossups", (json_int_t)verify->tossups, "experts",
        (json_int_t)verify->experts, "experts_equal", (json_int_t)verify->experts_equal,
        "expert_tossups", (json_int_t)verify->expert_tossups, "logits_error",
        pack_number(verify->logits_error), "weight_error", pack_number(verify->weight_error),
        "difference", pack_text(verify->difference));
}

static json_t *pack_all(const struct options *options, const struct job *job,
                        const struct summary *summary)
{
    struct layer_stats total = stats_total(summary->layers, summary->n_layers);
    struct report_shares shares = report_shares(summary);
    json_t *root = json_pack(
        "{s:o, s:s, s:i, s:i, s:b, s:b, s:i, s:I, s:f, s:f}", "model", pack_text(job->model),
        "model_type", job->config.model_type, "sequences", summary->n_sequences, "microbatches",
        options->single ? 1 : options->microbatches, "scatter", options->scatter, "single",
        options->single, "tokens_each", job->tokens, "tokens", (json_int_t)summary->tokens,
        "seconds", summary->seconds, "tokens_per_s", summary->tokens_per_second);
    if (!root)
        return NULL;
    json_object_set_new(root, "time_per_token_us",
                        json_pack("{s:I, s:f, s:f}", "steps", (json_int_t)summary->n_steps, "p50",
                                  stats_quantile(summary->steps_us, summary->n_steps, 0.5), "p99",
                                  stats_quantile(summary->steps_us, summary->n_steps, 0.99)));
    json_object_set_new(root, "layers", pack_layers(summary));
    json_object_set_new(root, "all_layers", pack_layer(&total));
    json_object_set_new(root, "shares",
                        json_pack("{s:f, s:f, s:f, s:f}", "round_trips_hidden", shares.hidden,
                                  "communication_hidden", shares.communication_hidden,
                                  "library_attention", shares.library_attention, "library_ffn",
                                  shares.library_ffn));
    if (options->verify)
        json_object_set_new(root, "verify", pack_verify(&summary->verify));
    json_object_set_new(root, "ranks", pack_ranks(summary));
    json_object_set_new(root, "output", pack_sequences(summary));
    return root;
}

int report_json(const char *path, const struct options *options, const struct job *job,
                const struct summary *summary, struct reason *reason)
{
    json_t *root = pack_all(options, job, summary);
    if (!root)
        return reason_no_memory(reason);
    int failed = json_dump_file(root, path, JSON_INDENT(1));
    int error = errno;
    json_decref(root);
    return failed ? reason_failed(reason, "%s: cannot be written: %s", path, strerror(error)) : 0;
}
