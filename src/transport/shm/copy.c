/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that bypass the cache.
 *
 * If source and destination together are larger than the last-level cache, a copy finds neither in
 * the cache, and its stores only evict other data, after the line was read for nothing. Stores that
 * bypass the cache save that read. The C library does the same, but from three quarters of the
 * cache size that the CPU reports; a virtual machine may report the whole host's cache, ten times
 * what its cores can use. Below that size the receiver would find its tensor in the cache, and such
 * stores take twice as long (bench/results/node.md). */
#include "transport/shm/copy.h"

#include "topo/topo.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    LINE = 64,
    AHEAD = 512, /* bytes by which the source is prefetched */
    CORE_CACHE =
        16 << 20, /* no CPU has more last-level cache per core: a larger value is the host's */
    UNKNOWN_CACHE = 32 << 20
};

size_t stepaf_shm_uncached_bytes(const struct stepaf_topo *topo, uint64_t asked)
{
    size_t most = (size_t)topo->cores_machine * CORE_CACHE;
    size_t cache = topo->l3_bytes ? topo->l3_bytes : UNKNOWN_CACHE;

    if (asked)
        return asked;
    return (cache < most ? cache : most) / 2;
}

#ifdef __SSE2__

static void copy_line(uint8_t *dst, const uint8_t *src)
{
    const __m128i *from = (const __m128i *)(const void *)src;
    __m128i *to = (__m128i *)(void *)dst;
    __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
    __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);

    _mm_prefetch((const char *)src + AHEAD, _MM_HINT_NTA); /* does not fault */
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
}

void stepaf_shm_copy_uncached(uint8_t *dst, const uint8_t *src, size_t bytes)
{
    size_t head = -(uintptr_t)dst % LINE, at;

    if (head > bytes)
        head = bytes;
    memcpy(dst, src, head);
    for (at = head; bytes - at >= LINE; at += LINE)
        copy_line(dst + at, src + at);
    memcpy(dst + at, src + at, bytes - at);
    _mm_sfence(); /* these stores are not ordered by themselves */
}

#else

void stepaf_shm_copy_uncached(uint8_t *dst, const uint8_t *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

#endif
