/* SPDX-License-Identifier: Apache-2.0 */
#include "math_ops.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <cblas.h>

/* The loops below are worth vectorizing whatever -O the user builds with. */
#if defined(__GNUC__) && !defined(__clang__)
#define HOT __attribute__((optimize("O3")))
#else
#define HOT
#endif

void math_set_threads(int threads)
{
    openblas_set_num_threads(threads);
}

void math_product_transposed(struct matrix left, struct matrix right, int rows, int cols, int inner,
                             float *out_p, int out_stride)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, cols, inner, 1.0f, left.data,
                left.stride, right.data, right.stride, 0.0f, out_p, out_stride);
}

void math_product(struct matrix left, struct matrix right, int rows, int cols, int inner,
                  float *out_p, int out_stride)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, cols, inner, 1.0f, left.data,
                left.stride, right.data, right.stride, 0.0f, out_p, out_stride);
}

HOT void math_rms_norm(const float *x, const float *weight, int n, float epsilon, float *out_p)
{
    float mean = cblas_sdot(n, x, 1, x, 1) / (float)n;
    float factor = 1.0f / sqrtf(mean + epsilon);
    for (int i = 0; i < n; i++)
        out_p[i] = weight[i] * (x[i] * factor);
}

/* e^x = 2^n * e^r with n = round(x / ln 2) and |r| <= ln(2) / 2, where seven terms of the series
 * are exact to float32. Written without branches or calls so that loops over it vectorize. */
static inline float fast_exp(float x)
{
    const float log2_e = 1.44269504f;
    const float ln2_high = 0.693145752f; /* few bits, so that n * ln2_high is exact */
    const float ln2_low = 1.42860677e-6f;
    const float rounder = 12582912.0f;       /* 1.5 * 2^23: adding it rounds to a whole number */
    float clamped = x > -87.0f ? x : -87.0f; /* also where x is not a number */
    clamped = clamped > 88.0f ? 88.0f : clamped;
    float n = (clamped * log2_e + rounder) - rounder;
    float r = (clamped - n * ln2_high) - n * ln2_low;
    float series = 1.0f / 5040;
    series = series * r + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    int32_t bits = ((int32_t)n + 127) * (1 << 23);
    float power;
    memcpy(&power, &bits, sizeof(power));
    return x < -87.0f ? 0.0f : series * power;
}

float math_exp(float x)
{
    return fast_exp(x);
}

HOT void math_softmax(float *x, int n, float scale)
{
    float largest = x[0];
    float sum = 0.0f;
    for (int i = 1; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (int i = 0; i < n; i++)
        x[i] = fast_exp((x[i] - largest) * scale);
    for (int i = 0; i < n; i++)
        sum += x[i];
    float factor = 1.0f / sum;
    for (int i = 0; i < n; i++)
        x[i] *= factor;
}

HOT void math_silu_product(float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++)
        gate[i] = gate[i] / (1.0f + fast_exp(-gate[i])) * up[i];
}

HOT void math_add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

HOT void math_add_scaled(float *x, const float *y, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += scale * y[i];
}
