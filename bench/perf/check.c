/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <string.h>

/* The finalizer of a counter-based generator: every bit of the result depends on every bit of the
 * counter, so that a byte of any other place, operation or rank is almost surely wrong. */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t word_of(uint64_t seed, size_t index)
{
    return mix(seed + (index + 1) * 0x9e3779b97f4a7c15u);
}

uint64_t perf_seed(const struct perf_origin *origin)
{
    uint64_t seed = mix((uint64_t)(uint32_t)origin->attn << 32 | (uint32_t)origin->ffn);

    seed = mix(seed ^ ((uint64_t)origin->place << 32 | origin->sequence));
    seed = mix(seed ^ (uint64_t)(uint32_t)origin->tensor);
    return mix(seed ^ origin->digest);
}

void perf_fill(void *data, size_t bytes, uint64_t seed)
{
    size_t words = bytes / 8;
    uint64_t word;

    for (size_t i = 0; i < words; i++) {
        word = word_of(seed, i);
        memcpy((char *)data + 8 * i, &word, 8);
    }
    word = word_of(seed, words);
    memcpy((char *)data + 8 * words, &word, bytes % 8);
}

static unsigned differing_bytes(uint64_t difference)
{
    unsigned n = 0;

    for (; difference != 0; difference >>= 8)
        n += (difference & 0xff) != 0;
    return n;
}

uint64_t perf_count_wrong(const void *data, size_t bytes, uint64_t seed)
{
    size_t words = bytes / 8;
    uint64_t wrong = 0;
    uint64_t word, expected;

    for (size_t i = 0; i < words; i++) {
        memcpy(&word, (const char *)data + 8 * i, 8);
        expected = word_of(seed, i);
        if (word != expected)
            wrong += differing_bytes(word ^ expected);
    }
    word = 0;
    expected = 0;
    memcpy(&word, (const char *)data + 8 * words, bytes % 8);
    memcpy(&expected, &(uint64_t){word_of(seed, words)}, bytes % 8);
    return wrong + differing_bytes(word ^ expected);
}

uint64_t perf_digest(uint64_t digest, const void *data, size_t bytes)
{
    uint64_t word = 0;
    size_t i = 0;

    for (; i + 8 <= bytes; i += 8) {
        memcpy(&word, (const char *)data + i, 8);
        digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
        digest ^= digest >> 32;
    }
    word = 0;
    memcpy(&word, (const char *)data + i, bytes % 8);
    return mix(digest ^ word ^ bytes);
}
