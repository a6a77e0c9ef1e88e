/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence being decoded: its ids, its cache, and the data that --verify compares. */
#ifndef DECODE_SEQUENCE_H
#define DECODE_SEQUENCE_H

#include "attention.h"

/* Ids to continue from; kept by the caller. */
struct prompt {
    const int *ids;
    int count;
    int reference; /* index in the file of --verify; -1: not in it */
};

struct sequence {
    int index; /* in the whole batch */
    const struct prompt *prompt;
    int *ids;  /* the prompt's, then the generated ones */
    int count; /* so far */
    int limit; /* limit of ids */
    int finished;
    struct kv_cache cache;
    int cached;       /* positions in the cache */
    float *logits;    /* after the prompt's last token; NULL unless verified */
    int32_t *experts; /* chosen for that token: [layers, experts_chosen] */
    float *expert_weights;
};

/* Make a sequence of up to @a tokens new ids. */
int sequence_create(const struct model_config *config, const struct prompt *prompt, int index,
                    int tokens, struct sequence *sequence_p, struct reason *reason);
void sequence_destroy(struct sequence *sequence);

/* Positions whose keys and values are not computed yet. */
static inline int sequence_pending(const struct sequence *sequence)
{
    return sequence->finished ? 0 : sequence->count - sequence->cached;
}

/* Whether the sequence is past its prompt, so that each step makes a token. */
static inline int sequence_decoding(const struct sequence *sequence)
{
    return sequence->cached >= sequence->prompt->count;
}

#endif
