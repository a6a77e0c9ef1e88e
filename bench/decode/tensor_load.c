/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor_load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct tensor_part tensor_whole(int64_t rows, int64_t cols, const char *format, ...)
{
    struct tensor_part part = {"", rows, cols, 0, rows, 0, cols};
    va_list args;
    va_start(args, format);
    vsnprintf(part.name, sizeof(part.name), format, args);
    va_end(args);
    return part;
}

static size_t part_values(const struct tensor_part *part)
{
    return (size_t)part->row_count * (size_t)(part->cols ? part->col_count : 1);
}

int tensor_load(const struct loader *loader, const struct tensor_part *parts, int n,
                float **values_p)
{
    size_t total = 0;
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        if (checkpoint_check(loader->checkpoint, &parts[i], loader->reason))
            return -1;
        total += part_values(&parts[i]);
    }
    float *values = malloc((total ? total : 1) * sizeof(float));
    if (!values)
        return reason_no_memory(loader->reason);
    for (int i = 0; i < n; i++) {
        if (checkpoint_read(loader->checkpoint, &parts[i], values + at, loader->reason)) {
            free(values);
            return -1;
        }
        at += part_values(&parts[i]);
    }
    *values_p = values;
    return 0;
}
