/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and reading blobs: fixed-width little-endian numbers, counted bytes. The reader trusts
 * nothing: after the first overrun every read gives 0 and failed is true. */
#ifndef STEPAF_BASE_PACK_H
#define STEPAF_BASE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A blob that grows. Zero-initialize; free data when done. failed turns true when memory is out. */
struct stepaf_pack {
    uint8_t *data;
    size_t bytes;
    size_t capacity;
    bool failed;
};

void stepaf_pack_u32(struct stepaf_pack *pack, uint32_t value);
void stepaf_pack_u64(struct stepaf_pack *pack, uint64_t value);
void stepaf_pack_bytes(struct stepaf_pack *pack, const void *data, size_t bytes);
/* A string as its length and bytes, without the end mark. */
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
/* Return the place of @a bytes bytes within the blob, NULL if it has not that many. */
const void *stepaf_unpack_bytes(struct stepaf_unpack *unpack, size_t bytes);
/* Copy a text into @a text_p, ended and cut to @a capacity. */
void stepaf_unpack_text(struct stepaf_unpack *unpack, char *text_p, size_t capacity);

#endif
