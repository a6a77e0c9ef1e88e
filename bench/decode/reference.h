/* SPDX-License-Identifier: Apache-2.0 */
/* The file of --verify: prompts, and the output of an independent implementation for them. */
#ifndef DECODE_REFERENCE_H
#define DECODE_REFERENCE_H

#include "model_config.h"

struct reference {
    char *name;
    int *prompt;
    int n_prompt;
    int *continuation; /* greedy */
    int n_continuation;
    float *margins;   /* [n_continuation]: largest logit minus the second, at each step */
    float *logits;    /* [vocab]: after the prompt's last token */
    int32_t *experts; /* [layers, experts_chosen] of that token; NULL if the file has none */
    float *weights;   /* likewise */
    float *gaps;      /* [layers]: probability of the last expert chosen minus the next one's */
};

struct reference_file {
    struct reference *references;
    int count;
};

/* Read @a path for the model that @a config describes. */
int reference_load(const char *path, const struct model_config *config,
                   struct reference_file *file_p, struct reason *reason);
void reference_free(struct reference_file *file);

/* The reference with this prompt; -1 if there is none. */
int reference_find(const struct reference_file *file, const int *ids, int count);

#endif
