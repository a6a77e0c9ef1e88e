/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn.h"

#include <stdlib.h>
#include <string.h>

#include "math_ops.h"

struct ffn_work {
    float *gathered;  /* [rows, hidden] */
    float *gate_up;   /* [rows, 2 * width] */
    float *scattered; /* [rows, hidden] */
    int *picked;      /* [rows]: which rows an expert has */
    float *scales;    /* [rows]: and how much it counts in each */
};

int ffn_work_create(const struct model_config *config, int max_rows, struct ffn_work **work_p,
                    struct reason *reason)
{
    size_t rows = (size_t)max_rows;
    size_t hidden = (size_t)config->hidden;
    int width =
        config->expert_width > config->intermediate ? config->expert_width : config->intermediate;
    struct ffn_work *work = calloc(1, sizeof(*work));
    if (!work)
        return reason_no_memory(reason);
    work->gathered = malloc(rows * hidden * sizeof(float));
    work->gate_up = malloc(rows * 2 * (size_t)width * sizeof(float));
    work->scattered = malloc(rows * hidden * sizeof(float));
    work->picked = malloc(rows * sizeof(int));
    work->scales = malloc(rows * sizeof(float));
    if (!work->gathered || !work->gate_up || !work->scattered || !work->picked || !work->scales) {
        ffn_work_destroy(work);
        return reason_no_memory(reason);
    }
    *work_p = work;
    return 0;
}

void ffn_work_destroy(struct ffn_work *work)
{
    if (!work)
        return;
    free(work->gathered);
    free(work->gate_up);
    free(work->scattered);
    free(work->picked);
    free(work->scales);
    free(work);
}

/* out = down(silu(gate(x)) * up(x)) */
static void run_unit(const struct ffn_unit *unit, const float *x, int rows, int hidden, float *out,
                     float *gate_up)
{
    int width = unit->width;
    math_product_transposed((struct matrix){x, hidden}, (struct matrix){unit->gate_up, hidden},
                            rows, 2 * width, hidden, gate_up, 2 * width);
    for (int row = 0; row < rows; row++) {
        float *gate = gate_up + (size_t)row * 2 * (size_t)width;
        math_silu_product(gate, gate + width, width);
    }
    math_product_transposed((struct matrix){gate_up, 2 * width}, (struct matrix){unit->down, width},
                            rows, hidden, width, out, hidden);
}

/* The rows that chose @a expert. */
static int pick_rows(const struct ffn_input *input, int expert, struct ffn_work *work)
{
    int count = 0;
    for (int row = 0; row < input->rows; row++) {
        size_t first = (size_t)row * (size_t)input->chosen;
        for (int i = 0; i < input->chosen; i++) {
            if (input->ids[first + (size_t)i] != expert)
                continue;
            work->picked[count] = row;
            work->scales[count++] = input->weights[first + (size_t)i];
            break; /* an expert has a row at most once */
        }
    }
    return count;
}

static void run_expert(const struct ffn_unit *unit, const struct ffn_input *input, int count,
                       int hidden, float *out_p, struct ffn_work *work)
{
    size_t size = (size_t)hidden;
    for (int i = 0; i < count; i++)
        memcpy(work->gathered + (size_t)i * size, input->hidden + (size_t)work->picked[i] * size,
               size * sizeof(float));
    run_unit(unit, work->gathered, count, hidden, work->scattered, work->gate_up);
    for (int i = 0; i < count; i++)
        math_add_scaled(out_p + (size_t)work->picked[i] * size, work->scattered + (size_t)i * size,
                        work->scales[i], size);
}

void ffn_run(const struct ffn_weights *weights, int layer, const struct ffn_input *input,
             int hidden, float *out_p, struct ffn_work *work)
{
    const struct ffn_layer *ffn = &weights->layers[layer];
    if (!ffn->sparse) {
        run_unit(&ffn->units[0], input->hidden, input->rows, hidden, out_p, work->gate_up);
        return;
    }
    memset(out_p, 0, (size_t)input->rows * (size_t)hidden * sizeof(float));
    for (int u = 0; u < ffn->n_units; u++) {
        int count = pick_rows(input, u * weights->parts + weights->part, work);
        if (count)
            run_expert(&ffn->units[u], input, count, hidden, out_p, work);
    }
}
