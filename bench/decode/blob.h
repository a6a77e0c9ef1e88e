/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that are put together on one rank and taken apart on another. */
#ifndef DECODE_BLOB_H
#define DECODE_BLOB_H

#include <stddef.h>

struct blob {
    char *bytes;
    size_t length;
    size_t capacity;
    int failed; /* some bytes did not fit into memory */
};

void blob_put(struct blob *blob, const void *bytes, size_t length);
void blob_free(struct blob *blob);

/* What is left to be taken. */
struct blob_reader {
    const char *at;
    size_t left;
};

/* Take the next @a length bytes; -1 if there are not so many. */
int blob_take(struct blob_reader *reader, void *bytes_p, size_t length);

/* Take @a count elements of @a size bytes each into *block_p, for free(). */
int blob_take_array(struct blob_reader *reader, size_t count, size_t size, void **block_p);

#endif
