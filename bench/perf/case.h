/* SPDX-License-Identifier: Apache-2.0 */
/* One row of the table as a pattern of tensors: what is sent to whom, the same for every
 * contender.
 *
 * An operation has one or two stages; each pushes all push tensors or none, and pulls one tensor
 * from each FFN rank or none. A window of microbatches * depth operations is kept in flight;
 * place w of the window belongs to microbatch w % microbatches and to buffer w / microbatches of
 * its keys. */
#ifndef PERF_CASE_H
#define PERF_CASE_H

#include "options.h"

enum { PERF_MAX_PUSH = 3, PERF_MAX_STAGES = 2 };

struct perf_tensor {
    stepaf_dtype_t dtype;
    int ndim;
    int64_t shape[STEPAF_MAX_DIMS];
    size_t bytes;
};

struct perf_stage {
    int n_push; /* 0 or all */
    int n_pull; /* 0 or 1 */
};

struct perf_case {
    int attn, ffn; /* numbers of ranks */
    int n_push;
    struct perf_tensor push[PERF_MAX_PUSH];
    int n_pull;
    struct perf_tensor pull;
    int n_stages;
    struct perf_stage stages[PERF_MAX_STAGES];
    unsigned microbatches, depth, window;
    int scatter;
    size_t push_bytes; /* of all push tensors, before they are cut into slices */
    size_t pull_bytes;
    uint64_t op_bytes; /* bytes that one operation of one attention rank moves, both ways */
};

/* Describe row @a row for @a attn and @a ffn ranks. Cannot fail: the options were checked. */
void perf_case_make(const struct perf_options *options, int row, int attn, int ffn,
                    struct perf_case *case_p);

/* Return the bytes of @a tensor that FFN rank @a f gets or gives, and their offset in it: all of
 * them, or with scatter its share of the rows. @a offset_p may be NULL. */
size_t perf_case_slice(const struct perf_case *c, const struct perf_tensor *tensor, int f,
                       size_t *offset_p);

/* Return the largest slice of @a tensor: its rows and bytes. @a rows_p may be NULL. */
size_t perf_case_largest(const struct perf_case *c, const struct perf_tensor *tensor,
                         int64_t *rows_p);

/* Return whether FFN rank @a f takes part: with scatter, one without rows does not. */
int perf_case_active(const struct perf_case *c, int f);

#endif
