/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a checkpoint's tensors in memory of their own. */
#ifndef DECODE_TENSOR_LOAD_H
#define DECODE_TENSOR_LOAD_H

#include "checkpoint.h"
#include "model_config.h"

struct loader {
    struct checkpoint *checkpoint;
    const struct model_config *config;
    struct reason *reason;
};

/* Called after each layer; @a done of @a total. */
typedef void (*load_progress_t)(int done, int total, void *arg);

/* A whole tensor; cols 0 for a vector. */
struct tensor_part tensor_whole(int64_t rows, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Load @a n parts one after the other into one block, *values_p for free(). Shapes are checked
 * before memory is allocated, so that no config can request more than the files hold. */
int tensor_load(const struct loader *loader, const struct tensor_part *parts, int n,
                float **values_p);

#endif
