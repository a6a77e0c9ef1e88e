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

void hs_fill(void *data, size_t bytes, uint64_t stream)
{
    unsigned char *to = data;
    uint64_t word;

    for (; bytes >= sizeof word; bytes -= sizeof word, to += sizeof word) {
        word = hs_mix(stream++);
        memcpy(to, &word, sizeof word);
    }
    if (bytes > 0) {
        word = hs_mix(stream);
        memcpy(to, &word, bytes);
    }
}

bool hs_verify(const char *what, const void *data, size_t bytes, uint64_t stream)
{
    const unsigned char *is = data;
    uint64_t word;

    for (size_t at = 0; at < bytes; at += sizeof word) {
        size_t n = bytes - at < sizeof word ? bytes - at : sizeof word;
        word = hs_mix(stream++);
        if (memcmp(is + at, &word, n) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            if (is[at + i] != ((unsigned char *)&word)[i])
                return HS_FAILED("%s: byte %zu of %zu is 0x%02x, should be 0x%02x", what, at + i,
                                 bytes, is[at + i], ((unsigned char *)&word)[i]);
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
