/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that follow from a number, so that a receiver knows what must have come. */
#include "harness.h"

#include <string.h>

uint64_t hs_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t hs_mix_text(const char *text)
{
    uint64_t x = 0;

    while (*text != '\0')
        x = hs_mix(x ^ (unsigned char)*text++);
    return x;
}

/* Sanitizers make each access a call: bytes are made in blocks, where nobody else is, and copied or
 * compared as a block. */
enum { BLOCK_WORDS = 128 };

__attribute__((no_sanitize("thread"))) static size_t make_block(uint64_t *block, size_t bytes,
                                                                uint64_t stream)
{
    size_t n = bytes < BLOCK_WORDS * sizeof *block ? bytes : BLOCK_WORDS * sizeof *block;

    for (size_t i = 0; i * sizeof *block < n; i++)
        block[i] = hs_mix(stream + i);
    return n;
}

void hs_fill(void *data, size_t bytes, uint64_t stream)
{
    unsigned char *to = data;
    uint64_t block[BLOCK_WORDS];

    for (size_t n; bytes > 0; bytes -= n, to += n, stream += BLOCK_WORDS) {
        n = make_block(block, bytes, stream);
        memcpy(to, block, n);
    }
}

bool hs_verify(const char *what, const void *data, size_t bytes, uint64_t stream)
{
    const unsigned char *is = data;
    uint64_t block[BLOCK_WORDS];

    for (size_t n, at = 0; at < bytes; at += n, stream += BLOCK_WORDS) {
        n = make_block(block, bytes - at, stream);
        if (memcmp(is + at, block, n) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            if (is[at + i] != ((unsigned char *)block)[i])
                return HS_FAILED("%s: byte %zu of %zu is 0x%02x, should be 0x%02x", what, at + i,
                                 bytes, is[at + i], ((unsigned char *)block)[i]);
    }
    return true;
}

bool hs_verify_poison(const char *what, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != HS_POISON)
            return HS_FAILED("%s: byte %zu beyond the tensor was written: 0x%02x", what, i,
                             data[i]);
    return true;
}
