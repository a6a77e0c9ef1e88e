/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol between attention ranks and FFN ranks: the tensors of a microbatch, and control
 * words. Both sides declare the same keys. */
#ifndef DECODE_WIRE_H
#define DECODE_WIRE_H

#include <stepaf/stepaf.h>

#include "layout.h"
#include "model_config.h"

/* Pushed tensors of a microbatch, in this order; the last two only if the model has experts. */
enum { WIRE_HEADER, WIRE_HIDDEN, WIRE_IDS, WIRE_WEIGHTS, WIRE_PUSHES };

/* Pulled tensors, from each FFN rank. */
enum { WIRE_REPLY, WIRE_SUM, WIRE_PULLS };

/* Pushed ahead of every batch. */
struct wire_header {
    int32_t magic;
    int32_t kind; /* WIRE_ROWS ... */
    int32_t microbatch;
    int32_t layer;
    int32_t rows;
    int32_t lost; /* WIRE_ABORT: world rank that is lost; else -1 */
};

enum { WIRE_MAGIC = 0x41464431 };

enum {
    WIRE_ROWS = 1,  /* rows of a layer: apply your experts */
    WIRE_STOP = 2,  /* this attention rank has no more rows: have all finished? */
    WIRE_BYE = 3,   /* it knows that all have stopped */
    WIRE_ABORT = 4, /* it stops because a rank is lost */
    WIRE_HOLD = 5   /* it has nothing in flight and will commit; you too, once all say this */
};

/* Pulled with every answer. */
struct wire_reply {
    int32_t magic;
    int32_t state; /* WIRE_GOING_ON ... */
    int32_t layer;
    int32_t lost; /* WIRE_RANK_LOST: world rank that is lost; else -1 */
};

enum {
    WIRE_GOING_ON = 0,
    WIRE_ALL_STOPPED = 1,
    WIRE_RANK_LOST = 2, /* there is no sum */
    WIRE_HOLDING = 3    /* it continues, and some attention rank wants to commit */
};

/* Return the key of tensor @a tensor of microbatch @a microbatch. Words without rows have a
 * microbatch of their own, WIRE_WORDS, with only a header and a reply. */
enum { WIRE_WORDS = -1 };
uint64_t wire_push_key(int microbatch, int tensor);
uint64_t wire_pull_key(int microbatch, int tensor);

/* Return the pushed tensors of a microbatch of this model. */
static inline int wire_pushes(const struct model_config *config)
{
    return config->experts ? WIRE_PUSHES : WIRE_IDS;
}

/* Declare all keys. */
stepaf_status_t wire_declare(stepaf_context_h ctx, const struct model_config *config,
                             const struct layout *layout);

#endif
