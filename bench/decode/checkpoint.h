/* SPDX-License-Identifier: Apache-2.0 */
/* A model directory's weights: one safetensors file, or shards and their index. A file is mapped
 * when a tensor in it is first requested, so that a rank touches only what its role needs. */
#ifndef DECODE_CHECKPOINT_H
#define DECODE_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "reason.h"

struct checkpoint;

enum { TENSOR_NAME_MAX = 128 };

/* Which part of a tensor to read. A vector has cols 0. */
struct tensor_part {
    char name[TENSOR_NAME_MAX];
    int64_t rows; /* whole shape that the tensor must have */
    int64_t cols;
    int64_t row_first; /* part to read */
    int64_t row_count;
    int64_t col_first;
    int64_t col_count;
};

int checkpoint_open(const char *dir, struct checkpoint **checkpoint_p, struct reason *reason);
void checkpoint_close(struct checkpoint *checkpoint);

/* Check that the tensor that @a part names exists with that shape and a known dtype. */
int checkpoint_check(struct checkpoint *checkpoint, const struct tensor_part *part,
                     struct reason *reason);

/* Read a part as float32 into @a values_p, row by row. */
int checkpoint_read(struct checkpoint *checkpoint, const struct tensor_part *part, float *values_p,
                    struct reason *reason);

/* Fail if some tensor belongs to a layer that a model of @a layers layers does not have. */
int checkpoint_check_layers(const struct checkpoint *checkpoint, int layers, struct reason *reason);

/* Bytes of the files read so far. */
uint64_t checkpoint_bytes_read(const struct checkpoint *checkpoint);

#endif
