/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic, all in float32. The only includer of cblas.h is math_ops.c. */
#ifndef DECODE_MATH_OPS_H
#define DECODE_MATH_OPS_H

#include <stddef.h>

/* Let matrix products use @a threads threads in this process. */
void math_set_threads(int threads);

/* A matrix in memory: row r starts at data + r * stride. */
struct matrix {
    const float *data;
    int stride;
};

/* out = left * right^T: left is [rows, inner], right [cols, inner], out [rows, cols]. */
void math_product_transposed(struct matrix left, struct matrix right, int rows, int cols, int inner,
                             float *out_p, int out_stride);

/* out = left * right: left is [rows, inner], right [inner, cols], out [rows, cols]. */
void math_product(struct matrix left, struct matrix right, int rows, int cols, int inner,
                  float *out_p, int out_stride);

/* out = x * weight / rms(x); out may be x. */
void math_rms_norm(const float *x, const float *weight, int n, float epsilon, float *out_p);

/* x = softmax(x * scale) in place. */
void math_softmax(float *x, int n, float scale);

/* gate = silu(gate) * up, in place. */
void math_silu_product(float *gate, const float *up, int n);

/* x += y, and x += scale * y. */
void math_add(float *x, const float *y, size_t n);
void math_add_scaled(float *x, const float *y, float scale, size_t n);

/* e^x with a relative error below 2e-7; 0 below -87. */
float math_exp(float x);

#endif
