/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>

int sample_greedy(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* A bijection of 64 bits in which every input bit changes about half of the output's. */
static uint64_t mix(uint64_t bits)
{
    bits += 0x9e3779b97f4a7c15;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
    return bits ^ bits >> 31;
}

int sample_draw(const float *logits, int n, double temperature, uint64_t seed, int sequence,
                int position)
{
    uint64_t bits = mix(mix(seed) ^ ((uint64_t)(uint32_t)sequence << 32 | (uint32_t)position));
    double uniform = (double)(bits >> 11) * 0x1p-53;
    double largest = logits[sample_greedy(logits, n)];
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((logits[i] - largest) / temperature);
    double rest = uniform * sum;
    for (int i = 0; i < n; i++) {
        rest -= exp((logits[i] - largest) / temperature);
        if (rest < 0)
            return i;
    }
    return n - 1;
}
