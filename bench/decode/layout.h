/* SPDX-License-Identifier: Apache-2.0 */
/* How sequences are dealt over attention ranks and their microbatches: sequence s belongs to
 * attention rank s mod A, there to microbatch (s / A) mod M. Pure; every rank computes the same
 * layout. */
#ifndef DECODE_LAYOUT_H
#define DECODE_LAYOUT_H

struct layout {
    int attention_ranks;
    int microbatches; /* of each attention rank */
    int sequences;    /* in all */
    int chunk;        /* rows of a step, unless there are more sequences than that */
};

static inline int layout_rank(const struct layout *layout, int sequence)
{
    return sequence % layout->attention_ranks;
}

static inline int layout_microbatch(const struct layout *layout, int sequence)
{
    return sequence / layout->attention_ranks % layout->microbatches;
}

/* Sequences of the fullest microbatch. */
static inline int layout_max_sequences(const struct layout *layout)
{
    int dealt = layout->attention_ranks * layout->microbatches;
    return (layout->sequences + dealt - 1) / dealt;
}

/* The maximum number of rows of any step of any microbatch. */
static inline int layout_max_rows(const struct layout *layout)
{
    int most = layout_max_sequences(layout);
    return most > layout->chunk ? most : layout->chunk;
}

/* Sequences of one attention rank. */
static inline int layout_rank_sequences(const struct layout *layout, int rank)
{
    return (layout->sequences - rank + layout->attention_ranks - 1) / layout->attention_ranks;
}

#endif
