/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors format: 8 bytes that give the header's length, the header in JSON, the data.
 * Pure: reads untrusted bytes in memory. */
#ifndef DECODE_SAFETENSORS_H
#define DECODE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "json.h"

enum { SAFETENSORS_MAX_DIMS = 8 };

#define SAFETENSORS_DTYPE_MAP(_) \
    _(F32, 4)                    \
    _(F16, 2)                    \
    _(BF16, 2)                   \
    _(F64, 8)                    \
    _(I64, 8)                    \
    _(U64, 8)                    \
    _(I32, 4)                    \
    _(U32, 4)                    \
    _(I16, 2)                    \
    _(U16, 2)                    \
    _(I8, 1)                     \
    _(U8, 1)                     \
    _(BOOL, 1)                   \
    _(F8_E4M3, 1)                \
    _(F8_E5M2, 1)

enum safetensors_dtype {
#define SAFETENSORS_DTYPE_ENUM(name_, bytes_) SAFETENSORS_##name_,
    SAFETENSORS_DTYPE_MAP(SAFETENSORS_DTYPE_ENUM)
#undef SAFETENSORS_DTYPE_ENUM
        SAFETENSORS_DTYPE_COUNT
};

struct safetensors_entry {
    const char *name;
    enum safetensors_dtype dtype;
    int ndim;
    int64_t shape[SAFETENSORS_MAX_DIMS];
    uint64_t begin; /* first byte, from the start of the file */
    uint64_t end;   /* one past the last */
};

struct safetensors {
    struct safetensors_entry *entries; /* in order of their names */
    size_t count;
    json_t *header; /* owns the names */
};

/* Parse the header of a file of @a bytes bytes; @a what names it in messages. Checks that every
 * tensor's extent lies in the file, has the size that its dtype and shape require, overlaps no
 * other, and that all extents together cover the data. */
int safetensors_parse(const uint8_t *file, uint64_t bytes, const char *what,
                      struct safetensors *st_p, struct reason *reason);

void safetensors_free(struct safetensors *st);

/* Find a tensor by its name; returns NULL if there is none. */
const struct safetensors_entry *safetensors_find(const struct safetensors *st, const char *name);

const char *safetensors_dtype_name(enum safetensors_dtype dtype);

#endif
