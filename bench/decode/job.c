/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model_dir.h"

enum { DEFAULT_TOKENS = 64 };

static const char default_prompt[] = "And it came to pass";

/* Parse numbers separated by commas or blanks. */
static int parse_ids(const char *text, int vocab, int **ids_p, size_t *count_p,
                     struct reason *reason)
{
    static const char separators[] = ", \t\n";
    size_t count = 0;
    int *ids = malloc((strlen(text) / 2 + 1) * sizeof(int));
    if (!ids)
        return reason_no_memory(reason);
    for (text += strspn(text, separators); *text; text += strspn(text, separators)) {
        char *end;
        errno = 0;
        long id = strtol(text, &end, 10);
        if (errno || end == text || !(*end == '\0' || strchr(separators, *end)) || id < 0 ||
            id >= vocab) {
            free(ids);
            return reason_bad_input(reason,
                                    "--prompt-ids: \"%.32s\" does not begin with an id in "
                                    "0..%d",
                                    text, vocab - 1);
        }
        ids[count++] = (int)id;
        text = end;
    }
    if (count == 0) {
        free(ids);
        return reason_bad_input(reason, "--prompt-ids: no ids");
    }
    *ids_p = ids;
    *count_p = count;
    return 0;
}

static int make_room(struct job *job, int n, struct reason *reason)
{
    job->prompts = calloc((size_t)n, sizeof(job->prompts[0]));
    job->owned_ids = calloc((size_t)n, sizeof(job->owned_ids[0]));
    if (!job->prompts || !job->owned_ids)
        return reason_no_memory(reason);
    job->n_prompts = n;
    return 0;
}

static int take_references(struct job *job, struct reason *reason)
{
    if (make_room(job, job->references.count, reason))
        return -1;
    for (int i = 0; i < job->n_prompts; i++) {
        const struct reference *reference = &job->references.references[i];
        job->prompts[i] = (struct prompt){reference->prompt, reference->n_prompt, i};
    }
    return 0;
}

static int take_prompt(struct job *job, const struct option_prompt *given, int index,
                       const char *why_not, struct reason *reason)
{
    size_t count = 0;
    int result;
    if (given->is_ids)
        result = parse_ids(given->text, job->config.vocab, &job->owned_ids[index], &count, reason);
    else if (job->tokenizer)
        result = tokenizer_encode(job->tokenizer, given->text, strlen(given->text),
                                  &job->owned_ids[index], &count, reason);
    else
        result = reason_bad_input(reason, "%s; give prompts as --prompt-ids", why_not);
    if (result)
        return -1;
    job->prompts[index] =
        (struct prompt){job->owned_ids[index], (int)count,
                        reference_find(&job->references, job->owned_ids[index], (int)count)};
    return 0;
}

static int take_prompts(const struct options *options, const char *why_not, struct job *job,
                        struct reason *reason)
{
    static const struct option_prompt fallback = {default_prompt, 0};
    if (options->n_prompts == 0 && options->verify)
        return take_references(job, reason);
    if (make_room(job, options->n_prompts ? options->n_prompts : 1, reason))
        return -1;
    int known = 0;
    for (int i = 0; i < job->n_prompts; i++) {
        if (take_prompt(job, options->n_prompts ? &options->prompts[i] : &fallback, i, why_not,
                        reason))
            return -1;
        known += job->prompts[i].reference >= 0;
    }
    if (options->verify && known == 0)
        return reason_bad_input(reason, "%s has none of the prompts", options->verify);
    return 0;
}

/* The requested number; else, with references, the number that all of them have. */
static int choose_tokens(const struct options *options, const struct job *job)
{
    int tokens = options->tokens;
    for (int i = 0; options->tokens == 0 && i < job->n_prompts; i++) {
        if (job->prompts[i].reference < 0)
            continue;
        int has = job->references.references[job->prompts[i].reference].n_continuation;
        tokens = tokens == 0 || has < tokens ? has : tokens;
    }
    return tokens ? tokens : DEFAULT_TOKENS;
}

static int check_lengths(const struct job *job, struct reason *reason)
{
    for (int i = 0; i < job->n_prompts; i++)
        if ((int64_t)job->prompts[i].count + job->tokens > job->config.context)
            return reason_bad_input(reason,
                                    "a prompt of %d ids and %d new tokens are longer than the "
                                    "model's context of %d",
                                    job->prompts[i].count, job->tokens, job->config.context);
    return 0;
}

static int load_all(const struct options *options, struct job *job, char **why_not,
                    struct reason *reason)
{
    if (model_dir_find(options->model, &job->model, reason) ||
        model_config_load(job->model, &job->config, reason) ||
        tokenizer_load(job->model, job->config.vocab, &job->tokenizer, why_not, reason))
        return -1;
    if (options->verify && reference_load(options->verify, &job->config, &job->references, reason))
        return -1;
    if (take_prompts(options, *why_not, job, reason))
        return -1;
    if (options->batch && options->batch < job->n_prompts)
        return reason_bad_input(reason, "--batch %d is fewer than %d prompts", options->batch,
                                job->n_prompts);
    job->sequences = options->batch ? options->batch : job->n_prompts;
    job->tokens = choose_tokens(options, job);
    job->ignore_eos = options->ignore_eos || options->verify;
    return check_lengths(job, reason);
}

int job_load(const struct options *options, struct job *job_p, struct reason *reason)
{
    struct job job = {0};
    char *why_not = NULL;
    int result = load_all(options, &job, &why_not, reason);
    free(why_not);
    if (result) {
        job_free(&job);
        return -1;
    }
    *job_p = job;
    return 0;
}

void job_free(struct job *job)
{
    for (int i = 0; i < job->n_prompts; i++)
        free(job->owned_ids[i]);
    free(job->owned_ids);
    free(job->prompts);
    reference_free(&job->references);
    tokenizer_free(job->tokenizer);
    free(job->model);
    *job = (struct job){0};
}

static uint64_t digest_bytes(uint64_t digest, const void *bytes, size_t count)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < count; i++)
        digest = (digest ^ byte[i]) * 0x100000001b3;
    return digest;
}

uint64_t job_digest(const struct job *job, const struct options *options)
{
    const int64_t numbers[] = {
        options->microbatches, options->chunk,         options->scatter,
        options->replicas.n,   job->sequences,         job->tokens,
        job->ignore_eos,       (int64_t)options->seed, options->trace != NULL};
    uint64_t digest = 0xcbf29ce484222325;
    digest = digest_bytes(digest, &job->config, sizeof(job->config));
    digest = digest_bytes(digest, numbers, sizeof(numbers));
    digest = digest_bytes(digest, &options->temperature, sizeof(options->temperature));
    for (int i = 0; i < job->n_prompts; i++)
        digest =
            digest_bytes(digest, job->prompts[i].ids, (size_t)job->prompts[i].count * sizeof(int));
    return digest;
}

int job_max_positions(const struct job *job)
{
    int longest = 0;
    for (int i = 0; i < job->n_prompts; i++)
        if (job->prompts[i].count > longest)
            longest = job->prompts[i].count;
    return longest + job->tokens;
}
