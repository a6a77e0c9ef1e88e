/* SPDX-License-Identifier: Apache-2.0 */
/* The next token from its logits. */
#ifndef DECODE_SAMPLE_H
#define DECODE_SAMPLE_H

#include <stdint.h>

/* Return the index of the largest of @a logits; of equals the first. */
int sample_greedy(const float *logits, int n);

/* Draw an index by softmax(logits / temperature). The draw depends on nothing but the seed, the
 * sequence and the position, so that it is the same however sequences are dealt over ranks. */
int sample_draw(const float *logits, int n, double temperature, uint64_t seed, int sequence,
                int position);

#endif
