/* SPDX-License-Identifier: Apache-2.0 */
#include "case.h"

#include <string.h>

static void make_bytes_tensor(size_t bytes, struct perf_tensor *tensor_p)
{
    *tensor_p = (struct perf_tensor){
        .dtype = STEPAF_U8, .ndim = 1, .shape = {(int64_t)bytes}, .bytes = bytes};
}

static void make_shaped_tensor(const struct perf_shape *shape, stepaf_dtype_t dtype,
                               struct perf_tensor *tensor_p)
{
    memset(tensor_p, 0, sizeof(*tensor_p));
    tensor_p->dtype = dtype;
    tensor_p->ndim = shape->ndim;
    memcpy(tensor_p->shape, shape->dims, sizeof(tensor_p->shape));
    tensor_p->bytes = stepaf_dtype_bytes(dtype);
    for (int i = 0; i < shape->ndim; i++)
        tensor_p->bytes *= (size_t)shape->dims[i];
}

static void make_tensors(const struct perf_options *options, const struct perf_row_size *row,
                         struct perf_case *c)
{
    struct perf_shape routing = {.ndim = 2,
                                 .dims = {row->shape.dims[0], (int64_t)options->route_topk}};

    if (row->shape.ndim == 0) {
        make_bytes_tensor(row->push_bytes, &c->push[c->n_push++]);
        make_bytes_tensor(row->pull_bytes, &c->pull);
        return;
    }
    make_shaped_tensor(&row->shape, options->push_dtype, &c->push[c->n_push++]);
    make_shaped_tensor(&row->shape, options->pull_dtype, &c->pull);
    if (options->route_topk > 0) {
        make_shaped_tensor(&routing, STEPAF_I32, &c->push[c->n_push++]);
        make_shaped_tensor(&routing, STEPAF_F32, &c->push[c->n_push++]);
    }
}

static void make_stages(enum perf_test test, struct perf_case *c)
{
    c->n_pull = 1;
    c->n_stages = 1;
    switch (test) {
    case PERF_PUSH:
    case PERF_BW:
        c->n_pull = 0;
        break;
    case PERF_PULL:
        c->n_push = 0;
        break;
    case PERF_PUSH_THEN_PULL:
        c->n_stages = 2;
        c->stages[0] = (struct perf_stage){c->n_push, 0};
        c->stages[1] = (struct perf_stage){0, 1};
        return;
    default:
        break;
    }
    c->stages[0] = (struct perf_stage){c->n_push, c->n_pull};
}

/* On streams every operation is answered: where a test has a tensor one way only, a word goes the
 * other. */
static void answer_all(struct perf_case *c)
{
    enum { WORD = 8 };

    if (c->n_pull == 0) {
        make_bytes_tensor(WORD, &c->pull);
        c->n_pull = 1;
    }
    if (c->n_push == 0) {
        make_bytes_tensor(WORD, &c->push[0]);
        c->n_push = 1;
    }
}

void perf_case_make(const struct perf_options *options, int row, int attn, int ffn,
                    struct perf_case *case_p)
{
    struct perf_case c = {.attn = attn,
                          .ffn = ffn,
                          .microbatches = (unsigned)options->microbatches,
                          .depth = (unsigned)options->depth,
                          .window = (unsigned)(options->microbatches * options->depth),
                          .scatter = options->scatter};

    make_tensors(options, &options->rows[row], &c);
    make_stages(options->test, &c);
    if (options->cuda.mem)
        answer_all(&c);
    for (int t = 0; t < c.n_push; t++)
        c.push_bytes += c.push[t].bytes;
    if (c.n_pull > 0)
        c.pull_bytes = c.pull.bytes;
    for (int f = 0; f < ffn; f++) {
        if (!perf_case_active(&c, f))
            continue;
        for (int t = 0; t < c.n_push; t++)
            c.op_bytes += perf_case_slice(&c, &c.push[t], f, NULL);
        if (c.n_pull > 0)
            c.op_bytes += perf_case_slice(&c, &c.pull, f, NULL);
    }
    *case_p = c;
}

size_t perf_case_slice(const struct perf_case *c, const struct perf_tensor *tensor, int f,
                       size_t *offset_p)
{
    size_t rows = (size_t)tensor->shape[0];
    size_t row_bytes = tensor->bytes / rows;
    size_t first = rows * (size_t)f / (size_t)c->ffn;
    size_t end = rows * ((size_t)f + 1) / (size_t)c->ffn;

    if (!c->scatter) {
        first = 0;
        end = rows;
    }
    if (offset_p != NULL)
        *offset_p = first * row_bytes;
    return (end - first) * row_bytes;
}

size_t perf_case_largest(const struct perf_case *c, const struct perf_tensor *tensor,
                         int64_t *rows_p)
{
    size_t rows = (size_t)tensor->shape[0];
    size_t parts = c->scatter ? (size_t)c->ffn : 1;
    size_t largest = (rows + parts - 1) / parts;

    if (rows_p != NULL)
        *rows_p = (int64_t)largest;
    return largest * (tensor->bytes / rows);
}

int perf_case_active(const struct perf_case *c, int f)
{
    if (!c->scatter)
        return 1;
    for (int t = 0; t < c->n_push; t++) {
        if (perf_case_slice(c, &c->push[t], f, NULL) > 0)
            return 1;
    }
    return 0;
}
