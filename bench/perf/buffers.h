/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's tensors of a row, in one block of memory that all contenders use. */
#ifndef PERF_BUFFERS_H
#define PERF_BUFFERS_H

#include <stepaf/context.h>

#include "case.h"
#include "place.h"

struct perf_buffers {
    const struct perf_case *c;
    int role;
    char *base;
    size_t bytes;
    void *to_free;                     /* malloc's, where the memory is not the library's */
    size_t push_start[PERF_MAX_PUSH];  /* attention: sources; FFN: receive buffers */
    size_t push_stride[PERF_MAX_PUSH]; /* from one microbatch (and attention rank) to the next */
    size_t pull_start;                 /* attention: destinations; FFN: answers */
    size_t pull_stride;
};

/* Offsets of this rank's tensors in their block: everything but base. */
void perf_buffers_lay_out(const struct perf_case *c, const struct perf_place *place,
                          struct perf_buffers *buffers_p);

/* Lay out and allocate the tensors of this rank: with stepaf_alloc; with @a user_memory, with
 * malloc and stepaf_register; with a NULL @a ctx, with malloc alone. Sources get random bytes.
 * -1 with a sentence. */
int perf_buffers_open(const struct perf_case *c, const struct perf_place *place,
                      stepaf_context_h ctx, int user_memory, struct perf_buffers *buffers_p);

/* Free what does not belong to the context; call after stepaf_finalize. */
void perf_buffers_close(struct perf_buffers *buffers);

/* Attention: return the source of push tensor @a t of microbatch @a m. */
static inline char *perf_buffers_push(const struct perf_buffers *b, unsigned m, int t)
{
    return b->base + b->push_start[t] + m * b->push_stride[t];
}

/* Attention: return the destination of FFN rank @a f's answer to microbatch @a m, buffer 0 of
 * the key; the next buffer follows after the key's largest bytes. */
static inline char *perf_buffers_pull(const struct perf_buffers *b, unsigned m, int f)
{
    return b->base + b->pull_start + (m * (size_t)b->c->ffn + (size_t)f) * b->pull_stride;
}

/* FFN: return the receive buffers of push tensor @a t of microbatch @a m, one slice of
 * push_stride[t] for each attention rank. */
static inline char *perf_buffers_recv(const struct perf_buffers *b, unsigned m, int t)
{
    return b->base + b->push_start[t] + m * (size_t)b->c->attn * b->push_stride[t];
}

/* FFN: return the source of the answer to place @a w of attention rank @a a's window. */
static inline char *perf_buffers_answer(const struct perf_buffers *b, int a, unsigned w)
{
    return b->base + b->pull_start + ((size_t)a * b->c->window + w) * b->pull_stride;
}

#endif
