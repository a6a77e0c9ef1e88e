/* SPDX-License-Identifier: Apache-2.0 */
/* Serialization: bytes assembled on one rank and parsed on another. */
#ifndef DECODE_BLOB_H
#define DECODE_BLOB_H

#include <stddef.h>

struct blob {
    char *bytes;
    size_t length;
    size_t capacity;
    int failed; /* an append failed for lack of memory */
};

void blob_put(struct blob *blob, const void *bytes, size_t length);
void blob_free(struct blob *blob);

/* The unread rest of a blob. */
struct blob_reader {
    const char *at;
    size_t left;
};

/* Read the next @a length bytes; -1 if fewer are left. */
int blob_take(struct blob_reader *reader, void *bytes_p, size_t length);

/* Read @a count elements of @a size bytes each into *block_p, for free(). */
int blob_take_array(struct blob_reader *reader, size_t count, size_t size, void **block_p);

#endif
