/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudorandom bytes that the receiver can compute for itself from the sender and the
 * destination. */
#ifndef PERF_CHECK_H
#define PERF_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* The seed of some bytes: every field changes all of them. */
struct perf_origin {
    int attn;          /* attention rank of the operation */
    int ffn;           /* FFN rank; -1 where all get the same bytes */
    unsigned place;    /* microbatch */
    uint32_t sequence; /* of the operation within its plan */
    int tensor;        /* -1: the answer */
    uint64_t digest;   /* answer: of what was received; else 0 */
};

uint64_t perf_seed(const struct perf_origin *origin);

/* Write the bytes of @a seed. */
void perf_fill(void *data, size_t bytes, uint64_t seed);

/* Count the bytes that are not those of @a seed. */
uint64_t perf_count_wrong(const void *data, size_t bytes, uint64_t seed);

/* Fold @a bytes at @a data into @a digest: ties an answer to what it answers. */
uint64_t perf_digest(uint64_t digest, const void *data, size_t bytes);

#endif
