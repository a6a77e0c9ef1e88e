/* SPDX-License-Identifier: Apache-2.0 */
#include "blob.h"

#include <stdlib.h>
#include <string.h>

void blob_put(struct blob *blob, const void *bytes, size_t length)
{
    if (blob->failed || length == 0)
        return;
    if (blob->capacity - blob->length < length) {
        size_t capacity = 2 * blob->capacity + length;
        char *larger = realloc(blob->bytes, capacity);
        if (!larger) {
            blob->failed = 1;
            return;
        }
        blob->bytes = larger;
        blob->capacity = capacity;
    }
    memcpy(blob->bytes + blob->length, bytes, length);
    blob->length += length;
}

void blob_free(struct blob *blob)
{
    free(blob->bytes);
    *blob = (struct blob){0};
}

int blob_take(struct blob_reader *reader, void *bytes_p, size_t length)
{
    if (length > reader->left)
        return -1;
    if (length)
        memcpy(bytes_p, reader->at, length);
    reader->at += length;
    reader->left -= length;
    return 0;
}

int blob_take_array(struct blob_reader *reader, size_t count, size_t size, void **block_p)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > reader->left)
        return -1;
    void *block = malloc(bytes ? bytes : 1);
    if (!block)
        return -1;
    if (blob_take(reader, block, bytes)) {
        free(block);
        return -1;
    }
    *block_p = block;
    return 0;
}
