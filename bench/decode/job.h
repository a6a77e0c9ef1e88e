/* SPDX-License-Identifier: Apache-2.0 */
/* The job's work, as every rank reads it from the options and the model's small files. */
#ifndef DECODE_JOB_H
#define DECODE_JOB_H

#include "model_config.h"
#include "options.h"
#include "reference.h"
#include "sequence.h"
#include "tokenizer.h"

struct job {
    char *model; /* directory */
    struct model_config config;
    struct tokenizer *tokenizer; /* NULL: ids only */
    struct reference_file references;
    struct prompt *prompts;
    int **owned_ids; /* of the prompts that are not from the reference; by prompt */
    int n_prompts;
    int sequences; /* to decode concurrently */
    int tokens;    /* new tokens for each */
    int ignore_eos;
};

int job_load(const struct options *options, struct job *job_p, struct reason *reason);
void job_free(struct job *job);

/* A number that is equal on ranks with the same job. */
uint64_t job_digest(const struct job *job, const struct options *options);

/* The prompt of sequence @a index. */
static inline const struct prompt *job_prompt(const struct job *job, int index)
{
    return &job->prompts[index % job->n_prompts];
}

/* Positions of the longest sequence. */
int job_max_positions(const struct job *job);

#endif
