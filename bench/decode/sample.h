/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the next token from its logits. */
#ifndef DECODE_SAMPLE_H
#define DECODE_SAMPLE_H

#include <stdint.h>

/* Return the index of the largest of @a logits; of equal ones the first. */
int sample_greedy(const float *logits, int n);

/* Draw an index by softmax(logits / temperature). The draw depends only on the seed, the
 * sequence and the position: it is the same however sequences are dealt over ranks. */
int sample_draw(const float *logits, int n, double temperature, uint64_t seed, int sequence,
                int position);

#endif
