/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs that are nearly right. A fuzzer's input is a list of edits, four bytes each, to a blob that
 * the code under test has made itself: so it gets past the first few fields, and the corpus does
 * not grow old when the format changes. */
#ifndef STEPAF_TEST_EDIT_H
#define STEPAF_TEST_EDIT_H

#include <string.h>

#include "fuzz.h"

enum { EDIT_BYTES = 4, EDIT_ROOM = 4096 };

/* Apply one edit (kind, place, place, value) to the @a bytes bytes at @a blob; return how many they
 * are then. */
static inline size_t edit_once(uint8_t *blob, size_t bytes, size_t capacity, const uint8_t *edit)
{
    static const uint32_t numbers[] = {0, 1, 2, 7, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    size_t at = bytes ? (edit[1] | (size_t)edit[2] << 8) % bytes : 0;

    switch (edit[0] % 6) {
    case 0:
        return at; /* cut */
    case 1:
        if (bytes)
            blob[at] ^= (uint8_t)(1u << edit[3] % 8);
        return bytes;
    case 2:
        if (bytes - at >= sizeof numbers[0])
            memcpy(blob + at, &numbers[edit[3] % 8], sizeof numbers[0]);
        return bytes;
    case 3: /* write some bytes twice */
        if (bytes + edit[3] > capacity || bytes - at < edit[3])
            return bytes;
        memmove(blob + at + edit[3], blob + at, bytes - at);
        return bytes + edit[3];
    case 4: /* take some out */
        if (bytes - at < edit[3])
            return at;
        memmove(blob + at, blob + at + edit[3], bytes - at - edit[3]);
        return bytes - edit[3];
    default:
        if (bytes)
            blob[at] = edit[3];
        return bytes;
    }
}

/* Make a copy of @a blob of its exact size, edited. The caller frees it. */
static inline uint8_t *edit_copy(const uint8_t *blob, size_t blob_bytes, const uint8_t *edits,
                                 size_t bytes, size_t *edited_bytes_p)
{
    size_t capacity = blob_bytes + EDIT_ROOM, n = blob_bytes;
    uint8_t *room = malloc(capacity);

    FUZZ_CHECK(room);
    memcpy(room, blob, blob_bytes);
    for (size_t at = 0; bytes - at >= EDIT_BYTES; at += EDIT_BYTES)
        n = edit_once(room, n, capacity, edits + at);
    uint8_t *copy = malloc(n ? n : 1);
    FUZZ_CHECK(copy);
    memcpy(copy, room, n);
    free(room);
    *edited_bytes_p = n;
    return copy;
}

#endif
