/* SPDX-License-Identifier: Apache-2.0 */
#include "sizes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

/* Digits only: strtoull alone would take spaces, signs and "-1". */
static int parse_digits(const char **text_p, uint64_t *number_p)
{
    char *end;

    if (**text_p < '0' || **text_p > '9')
        return -1;
    errno = 0;
    *number_p = strtoull(*text_p, &end, 10);
    if (errno != 0)
        return -1;
    *text_p = end;
    return 0;
}

/* One size with its suffix, 1 .. PERF_MAX_BYTES. */
static int parse_size(const char **text_p, uint64_t *bytes_p)
{
    uint64_t bytes;
    unsigned shift = 0;

    if (parse_digits(text_p, &bytes) != 0)
        return -1;
    switch (**text_p) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    default:
        break;
    }
    if (shift != 0)
        (*text_p)++;
    if (bytes == 0 || bytes > PERF_MAX_BYTES >> shift)
        return -1;
    *bytes_p = bytes << shift;
    return 0;
}

/* One item of a list: a size, or a sweep with its end and factor. */
static int parse_item(const char **text_p, uint64_t *first_p, uint64_t *last_p, uint64_t *factor_p)
{
    *factor_p = 2;
    if (parse_size(text_p, first_p) != 0)
        return -1;
    *last_p = *first_p;
    if (**text_p != ':')
        return 0;
    (*text_p)++;
    if (parse_size(text_p, last_p) != 0 || *last_p < *first_p)
        return -1;
    if (**text_p != ':')
        return 0;
    (*text_p)++;
    return parse_digits(text_p, factor_p) != 0 || *factor_p < 2 ? -1 : 0;
}

int perf_sizes_parse(const char *text, struct perf_sizes *sizes_p)
{
    struct perf_sizes sizes = {0};
    const char *next = text;

    for (;;) {
        uint64_t first, last, factor;

        if (parse_item(&next, &first, &last, &factor) != 0 || (*next != ',' && *next != '\0'))
            return perf_fail("'%s' is not a list of sizes such as 64,4K or 8:8M, each from 1 to "
                             "4294967295 bytes",
                             text);
        for (uint64_t bytes = first; bytes <= last; bytes *= factor) {
            if (sizes.n == PERF_MAX_SIZES)
                return perf_fail("'%s' has more than %d sizes", text, PERF_MAX_SIZES);
            sizes.bytes[sizes.n++] = bytes;
            if (bytes > last / factor)
                break;
        }
        if (*next == '\0')
            break;
        next++;
    }
    *sizes_p = sizes;
    return 0;
}

static int parse_shape(const char **text_p, struct perf_shape *shape_p)
{
    shape_p->ndim = 0;
    for (;;) {
        uint64_t dim;

        if (shape_p->ndim == STEPAF_MAX_DIMS || parse_digits(text_p, &dim) != 0 || dim == 0 ||
            dim > PERF_MAX_BYTES)
            return -1;
        shape_p->dims[shape_p->ndim++] = (int64_t)dim;
        if (**text_p != 'x' && **text_p != 'X')
            return 0;
        (*text_p)++;
    }
}

int perf_shapes_parse(const char *text, struct perf_shapes *shapes_p)
{
    struct perf_shapes shapes = {0};
    const char *next = text;

    for (;;) {
        if (shapes.n == PERF_MAX_SHAPES)
            return perf_fail("'%s' has more than %d shapes", text, PERF_MAX_SHAPES);
        if (parse_shape(&next, &shapes.shape[shapes.n++]) != 0 || (*next != ',' && *next != '\0'))
            return perf_fail("'%s' is not a list of shapes such as 128x7168, of at most %d "
                             "dimensions each",
                             text, STEPAF_MAX_DIMS);
        if (*next == '\0')
            break;
        next++;
    }
    *shapes_p = shapes;
    return 0;
}

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
#define DTYPE_ROW(value_, text_, bytes_) [value_] = {text_, bytes_},
    STEPAF_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

static const char dtype_list[] =
#define DTYPE_NAME(value_, text_, bytes_) " " text_
    STEPAF_DTYPE_MAP(DTYPE_NAME);
#undef DTYPE_NAME

int perf_dtype_parse(const char *text, stepaf_dtype_t *dtype_p)
{
    for (int i = 0; i < STEPAF_DTYPE_LAST; i++) {
        if (strcmp(dtypes[i].name, text) == 0) {
            *dtype_p = (stepaf_dtype_t)i;
            return 0;
        }
    }
    return perf_fail("'%s' is not an element type; the types are%s", text, dtype_list);
}

int perf_shape_bytes(const struct perf_shape *shape, stepaf_dtype_t dtype, size_t *bytes_p)
{
    uint64_t bytes = dtypes[dtype].bytes;

    for (int i = 0; i < shape->ndim; i++) {
        if ((uint64_t)shape->dims[i] > PERF_MAX_BYTES / bytes)
            return perf_fail("a tensor of that shape has more than 4294967295 bytes");
        bytes *= (uint64_t)shape->dims[i];
    }
    *bytes_p = bytes;
    return 0;
}

int perf_number_parse(const char *text, const char *what, uint64_t min, uint64_t max,
                      uint64_t *number_p)
{
    const char *next = text;
    uint64_t number;

    if (parse_digits(&next, &number) != 0 || *next != '\0' || number < min || number > max)
        return perf_fail("%s '%s' is not a whole number from %llu to %llu", what, text,
                         (unsigned long long)min, (unsigned long long)max);
    *number_p = number;
    return 0;
}
