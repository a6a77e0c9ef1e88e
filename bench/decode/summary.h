/* SPDX-License-Identifier: Apache-2.0 */
/* The results of all ranks, merged. */
#ifndef DECODE_SUMMARY_H
#define DECODE_SUMMARY_H

#include <limits.h>

#include "attention_side.h"
#include "blob.h"
#include "stats.h"

enum { SUMMARY_HOST_MAX = HOST_NAME_MAX + 1, SUMMARY_TRANSPORTS_MAX = 192 };

/* The location and role of a rank. */
struct place {
    int32_t world;
    int32_t role;  /* stepaf_role_t */
    int32_t index; /* within its role's group */
    int32_t pid;
    int32_t threads;
    int32_t crowded; /* more ranks than cores there */
    char host[SUMMARY_HOST_MAX];
    char transports[SUMMARY_TRANSPORTS_MAX]; /* how it reaches the other role's ranks */
    uint64_t bytes_read;                     /* of the weights */
};

/* Measurements of an FFN rank over the whole run. */
struct ffn_stats {
    int64_t batches;
    int64_t rows;
    int64_t compute_ns;
    int64_t library_ns; /* answering: not waiting for batches */
    int64_t begin_ns;
    int64_t end_ns;
};

/* One rank's part; steps, layers and sequences follow in its blob. */
struct rank_record {
    struct place place;
    int32_t n_layers;
    uint64_t n_steps;
    uint64_t n_sequences;
    int64_t tokens;
    int64_t tokens_before;
    int64_t begin_ns;
    int64_t steady_ns;
    int64_t end_ns;
    struct verify_result verify;
    struct ffn_stats ffn;
};

struct summary_sequence {
    int32_t index;
    int32_t prompt_count;
    int32_t count;
    int *ids; /* [count] */
};

struct summary {
    struct rank_record *ranks;
    int n_ranks;
    int max_ranks;
    int n_layers;
    struct layer_stats *layers; /* sums over attention ranks */
    float *steps_us;            /* of all attention ranks, sorted by summary_finish */
    size_t n_steps;
    struct summary_sequence *sequences; /* by index */
    int n_sequences;
    struct verify_result verify;
    int64_t tokens;
    double seconds;           /* of the longest rank, prompts included */
    double tokens_per_second; /* in the steady time */
    double steady_ns;         /* sum over attention ranks */
};

int summary_create(int ranks, int layers, int sequences, struct summary *summary_p,
                   struct reason *reason);
void summary_destroy(struct summary *summary);

/* Make an attention rank's part, or an FFN rank's. */
void summary_put_attention(struct blob *blob, const struct place *place,
                           const struct attention_side *side, const struct stats *stats);
void summary_put_ffn(struct blob *blob, const struct place *place, const struct ffn_stats *stats);

/* Add a rank's part; after all of them, call summary_finish. */
int summary_take(struct summary *summary, const void *bytes, size_t length, struct reason *reason);
void summary_finish(struct summary *summary);

#endif
