/* SPDX-License-Identifier: Apache-2.0 */
/* Write and read blobs: fixed-width little-endian numbers, counted bytes. The reader trusts
 * nothing: after the first overrun every read returns 0 and failed is true. */
#ifndef STEPAF_BASE_PACK_H
#define STEPAF_BASE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing blob. Zero-initialize; free data when done. failed becomes true if memory runs out. */
struct stepaf_pack {
    uint8_t *data;
    size_t bytes;
    size_t capacity;
    bool failed;
};

void stepaf_pack_u32(struct stepaf_pack *pack, uint32_t value);
void stepaf_pack_u64(struct stepaf_pack *pack, uint64_t value);
void stepaf_pack_bytes(struct stepaf_pack *pack, const void *data, size_t bytes);
/* Write a string as its length and bytes, without the terminating zero. */
void stepaf_pack_text(struct stepaf_pack *pack, const char *text);

struct stepaf_unpack {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

static inline struct stepaf_unpack stepaf_unpack_from(const void *data, size_t bytes)
{
    return (struct stepaf_unpack){data, (const uint8_t *)data + bytes, false};
}

uint32_t stepaf_unpack_u32(struct stepaf_unpack *unpack);
uint64_t stepaf_unpack_u64(struct stepaf_unpack *unpack);
/* Return the address of the next @a bytes bytes within the blob; NULL if the blob has fewer. */
const void *stepaf_unpack_bytes(struct stepaf_unpack *unpack, size_t bytes);
/* Copy a text into @a text_p, terminated and cut to @a capacity. */
void stepaf_unpack_text(struct stepaf_unpack *unpack, char *text_p, size_t capacity);

#endif
