/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that bypass the cache. */
#ifndef STEPAF_TRANSPORT_SHM_COPY_H
#define STEPAF_TRANSPORT_SHM_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct stepaf_topo;

/* Return from how many bytes on a copy bypasses the cache. @a asked: the value of the setting; 0:
 * estimate what the machine's last-level cache can hold. */
size_t stepaf_shm_uncached_bytes(const struct stepaf_topo *topo, uint64_t asked);

/* Copy with stores that bypass the cache, if the CPU has them. A thread that then sees a release
 * store of this thread also sees the bytes. */
void stepaf_shm_copy_uncached(uint8_t *dst, const uint8_t *src, size_t bytes);

/* Copy, bypassing the cache from @a uncached bytes on. */
static inline void stepaf_shm_copy(uint8_t *dst, const uint8_t *src, size_t bytes, size_t uncached)
{
    if (__builtin_expect(bytes < uncached, 1))
        memcpy(dst, src, bytes);
    else
        stepaf_shm_copy_uncached(dst, src, bytes);
}

#endif
