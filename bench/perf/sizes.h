/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and shapes in the notation of the command line. Pure: no I/O, no global state but the
 * sentence of a failure (fail.h). */
#ifndef PERF_SIZES_H
#define PERF_SIZES_H

#include <stddef.h>
#include <stdint.h>

#include <stepaf/types.h>

enum { PERF_MAX_SIZES = 256, PERF_MAX_SHAPES = 64 };

/* The largest tensor that a key can name. */
#define PERF_MAX_BYTES ((uint64_t)UINT32_MAX)

struct perf_sizes {
    int n;
    size_t bytes[PERF_MAX_SIZES];
};

struct perf_shape {
    int ndim;
    int64_t dims[STEPAF_MAX_DIMS];
};

struct perf_shapes {
    int n;
    struct perf_shape shape[PERF_MAX_SHAPES];
};

/* Parse a list such as "64,4K,8:8M,1K:1M:4": sizes in bytes, with the suffixes K, M and G (powers
 * of 1024), and sweeps FIRST:LAST[:FACTOR], whose factor is 2 unless given. Returns 0, or -1 with
 * a sentence; *sizes_p is unchanged then. */
int perf_sizes_parse(const char *text, struct perf_sizes *sizes_p);

/* Parse a list such as "128x7168,64x5120". Returns as above. */
int perf_shapes_parse(const char *text, struct perf_shapes *shapes_p);

/* Parse an element type's name, such as "bf16". Returns as above. */
int perf_dtype_parse(const char *text, stepaf_dtype_t *dtype_p);

/* The bytes of @a shape in elements of @a dtype; -1 with a sentence if they are more than a key
 * can name. */
int perf_shape_bytes(const struct perf_shape *shape, stepaf_dtype_t dtype, size_t *bytes_p);

/* Parse a whole number between @a min and @a max; @a what names it in the sentence. */
int perf_number_parse(const char *text, const char *what, uint64_t min, uint64_t max,
                      uint64_t *number_p);

#endif
