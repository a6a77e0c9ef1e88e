/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "math_ops.h"

struct attention_work {
    float *normed;  /* [rows, hidden] */
    float *qkv;     /* [rows, (heads + 2 * kv_heads) * head_dim] */
    float *scores;  /* [rows or heads of a group, positions] */
    float *mixed;   /* [rows, heads * head_dim] */
    float *cosines; /* [positions, head_dim / 2] */
    float *sines;
};

int kv_cache_create(const struct model_config *config, int capacity, struct kv_cache *cache_p,
                    struct reason *reason)
{
    size_t values = (size_t)config->layers * (size_t)config->kv_heads * (size_t)capacity *
                    (size_t)config->head_dim;
    struct kv_cache cache = {malloc(values * sizeof(float)), malloc(values * sizeof(float)),
                             capacity};
    if (!cache.keys || !cache.values) {
        kv_cache_destroy(&cache);
        return reason_no_memory(reason);
    }
    *cache_p = cache;
    return 0;
}

void kv_cache_destroy(struct kv_cache *cache)
{
    free(cache->keys);
    free(cache->values);
    *cache = (struct kv_cache){0};
}

/* Frequencies and angles in float32 throughout, as the models were trained. */
static void fill_rotations(const struct model_config *config, int positions,
                           struct attention_work *work)
{
    int half = config->head_dim / 2;
    for (int k = 0; k < half; k++) {
        float exponent = (float)(2 * k) / (float)config->head_dim;
        float frequency = 1.0f / powf(config->rope_theta, exponent);
        for (int position = 0; position < positions; position++) {
            float angle = (float)position * frequency;
            work->cosines[(size_t)position * (size_t)half + (size_t)k] = cosf(angle);
            work->sines[(size_t)position * (size_t)half + (size_t)k] = sinf(angle);
        }
    }
}

static float *floats(size_t rows, size_t cols)
{
    return calloc(rows * cols, sizeof(float));
}

int attention_work_create(const struct model_config *config, int max_rows, int max_positions,
                          struct attention_work **work_p, struct reason *reason)
{
    size_t rows = (size_t)max_rows;
    size_t queries = (size_t)config->heads * (size_t)config->head_dim;
    size_t keys = (size_t)config->kv_heads * (size_t)config->head_dim;
    size_t group = (size_t)(config->heads / config->kv_heads);
    size_t half = (size_t)config->head_dim / 2;
    struct attention_work *work = calloc(1, sizeof(*work));
    if (!work)
        return reason_no_memory(reason);
    work->normed = floats(rows, (size_t)config->hidden);
    work->qkv = floats(rows, queries + 2 * keys);
    work->scores = floats(rows > group ? rows : group, (size_t)max_positions);
    work->mixed = floats(rows, queries);
    work->cosines = floats((size_t)max_positions, half);
    work->sines = floats((size_t)max_positions, half);
    if (!work->normed || !work->qkv || !work->scores || !work->mixed || !work->cosines ||
        !work->sines) {
        attention_work_destroy(work);
        return reason_no_memory(reason);
    }
    fill_rotations(config, max_positions, work);
    *work_p = work;
    return 0;
}

void attention_work_destroy(struct attention_work *work)
{
    if (!work)
        return;
    free(work->normed);
    free(work->qkv);
    free(work->scores);
    free(work->mixed);
    free(work->cosines);
    free(work->sines);
    free(work);
}

static size_t cache_offset(const struct model_config *config, const struct kv_cache *cache,
                           int layer, int kv_head, int position)
{
    size_t head = (size_t)layer * (size_t)config->kv_heads + (size_t)kv_head;
    return (head * (size_t)cache->capacity + (size_t)position) * (size_t)config->head_dim;
}

/* Rotate the pairs (k, k + head_dim / 2) of one head. */
static void rotate(float *head, const float *cosines, const float *sines, int half)
{
    for (int k = 0; k < half; k++) {
        float first = head[k];
        float second = head[k + half];
        head[k] = first * cosines[k] - second * sines[k];
        head[k + half] = second * cosines[k] + first * sines[k];
    }
}

/* Normalize and rotate one row's queries and keys, and store its keys and values. */
static void prepare_row(const struct model_config *config, const struct attention_layer *weights,
                        int layer, const struct kv_cache *cache, int position, float *row,
                        const struct attention_work *work)
{
    int size = config->head_dim;
    int half = size / 2;
    const float *cosines = work->cosines + (size_t)position * (size_t)half;
    const float *sines = work->sines + (size_t)position * (size_t)half;
    for (int h = 0; h < config->heads + config->kv_heads; h++) {
        float *head = row + h * size;
        const float *norm = h < config->heads ? weights->q_norm : weights->k_norm;
        if (norm)
            math_rms_norm(head, norm, size, config->rms_epsilon, head);
        rotate(head, cosines, sines, half);
    }
    const float *keys = row + config->heads * size;
    const float *values = keys + config->kv_heads * size;
    for (int h = 0; h < config->kv_heads; h++) {
        size_t at = cache_offset(config, cache, layer, h, position);
        memcpy(cache->keys + at, keys + h * size, (size_t)size * sizeof(float));
        memcpy(cache->values + at, values + h * size, (size_t)size * sizeof(float));
    }
}

/* Multiply queries with all keys so far, and the result with the values: @a count queries, @a
 * stride apart, all of one key-value head. Query i sees positions up to first + i * causal. */
static void attend(const struct model_config *config, struct matrix queries, int count,
                   struct matrix keys, struct matrix values, int first, int causal, float *out,
                   int out_stride, float *scores)
{
    int length = first + 1 + (causal ? count - 1 : 0);
    float scale = 1.0f / sqrtf((float)config->head_dim);
    math_product_transposed(queries, keys, count, length, config->head_dim, scores, length);
    for (int i = 0; i < count; i++) {
        float *row = scores + (size_t)i * (size_t)length;
        int seen = first + 1 + (causal ? i : 0);
        math_softmax(row, seen, scale);
        memset(row + seen, 0, (size_t)(length - seen) * sizeof(float));
    }
    math_product((struct matrix){scores, length}, values, count, config->head_dim, length, out,
                 out_stride);
}

/* Compute attention of a segment's rows, which start at @a qkv, into @a mixed. */
static void attend_segment(const struct model_config *config, int layer,
                           const struct segment *segment, const float *qkv, float *mixed,
                           float *scores)
{
    int size = config->head_dim;
    int group = config->heads / config->kv_heads;
    int qkv_stride = (config->heads + 2 * config->kv_heads) * size;
    int mixed_stride = config->heads * size;
    for (int h = 0; h < config->kv_heads; h++) {
        size_t at = cache_offset(config, segment->cache, layer, h, 0);
        struct matrix keys = {segment->cache->keys + at, size};
        struct matrix values = {segment->cache->values + at, size};
        /* A single row's heads of a group are contiguous: one product for them all. */
        if (segment->rows == 1) {
            attend(config, (struct matrix){qkv + h * group * size, size}, group, keys, values,
                   segment->position, 0, mixed + h * group * size, size, scores);
            continue;
        }
        for (int q = h * group; q < (h + 1) * group; q++)
            attend(config, (struct matrix){qkv + q * size, qkv_stride}, segment->rows, keys, values,
                   segment->position, 1, mixed + q * size, mixed_stride, scores);
    }
}

static void add_bias(float *x, const float *bias, int rows, int cols)
{
    for (int row = 0; bias && row < rows; row++)
        math_add(x + (size_t)row * (size_t)cols, bias, (size_t)cols);
}

void attention_run(const struct model_config *config, const struct attention_layer *weights,
                   int layer, const struct segment *segments, int n_segments, float *x,
                   struct attention_work *work)
{
    int hidden = config->hidden;
    int queries = config->heads * config->head_dim;
    int qkv = queries + 2 * config->kv_heads * config->head_dim;
    int rows = 0;
    for (int s = 0; s < n_segments; s++)
        rows += segments[s].rows;
    for (int row = 0; row < rows; row++)
        math_rms_norm(x + (size_t)row * (size_t)hidden, weights->input_norm, hidden,
                      config->rms_epsilon, work->normed + (size_t)row * (size_t)hidden);
    math_product_transposed((struct matrix){work->normed, hidden},
                            (struct matrix){weights->qkv, hidden}, rows, qkv, hidden, work->qkv,
                            qkv);
    add_bias(work->qkv, weights->qkv_bias, rows, qkv);
    int row = 0;
    for (int s = 0; s < n_segments; s++) {
        float *first = work->qkv + (size_t)row * (size_t)qkv;
        for (int r = 0; r < segments[s].rows; r++)
            prepare_row(config, weights, layer, segments[s].cache, segments[s].position + r,
                        first + (size_t)r * (size_t)qkv, work);
        attend_segment(config, layer, &segments[s], first,
                       work->mixed + (size_t)row * (size_t)queries, work->scores);
        row += segments[s].rows;
    }
    math_product_transposed((struct matrix){work->mixed, queries},
                            (struct matrix){weights->output, queries}, rows, hidden, queries,
                            work->normed, hidden);
    add_bias(work->normed, weights->output_bias, rows, hidden);
    math_add(x, work->normed, (size_t)rows * (size_t)hidden);
}
