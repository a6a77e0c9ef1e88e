/* SPDX-License-Identifier: Apache-2.0 */
/* Copying what no cache holds. */
#ifndef STEPAF_TRANSPORT_SHM_COPY_H
#define STEPAF_TRANSPORT_SHM_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct stepaf_topo;

/* From how many bytes on a copy goes past the cache. @a asked: by the setting; 0: by what the
 * machine's last-level cache is believed to hold. */
size_t stepaf_shm_uncached_bytes(const struct stepaf_topo *topo, uint64_t asked);

/* Copy by stores that go past the cache, where the processor has them; whoever then sees a store of
 * this thread's with release order sees the bytes. */
void stepaf_shm_copy_uncached(uint8_t *dst, const uint8_t *src, size_t bytes);

/* Copy, past the cache from @a uncached bytes on. */
static inline void stepaf_shm_copy(uint8_t *dst, const uint8_t *src, size_t bytes, size_t uncached)
{
    if (__builtin_expect(bytes < uncached, 1))
        memcpy(dst, src, bytes);
    else
        stepaf_shm_copy_uncached(dst, src, bytes);
}

#endif
