/* SPDX-License-Identifier: Apache-2.0 */
/* FNV-1a, 64 bits: tells short texts apart; not for secrets. */
#ifndef STEPAF_BASE_HASH_H
#define STEPAF_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define STEPAF_HASH_START ((uint64_t)0xcbf29ce484222325u)

/* Continue @a hash with @a bytes bytes. */
static inline uint64_t stepaf_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *c = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ c[i]) * 0x100000001b3u;
    return hash;
}

#endif
