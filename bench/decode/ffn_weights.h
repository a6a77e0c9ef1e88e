/* SPDX-License-Identifier: Apache-2.0 */
/* What an FFN rank needs of a model, in float32: its experts, or its slice of dense FFNs. */
#ifndef DECODE_FFN_WEIGHTS_H
#define DECODE_FFN_WEIGHTS_H

#include "tensor_load.h"

/* One gated FFN, or the part of one: down(silu(gate(x)) * up(x)). */
struct ffn_unit {
    float *gate_up; /* [2 * width, hidden]: gate, then up */
    float *down;    /* [hidden, width] */
    int width;
};

struct ffn_layer {
    int sparse;
    int n_units; /* sparse: unit u is expert u * parts + part; dense: one */
    struct ffn_unit *units;
};

struct ffn_weights {
    struct ffn_layer *layers;
    int n_layers;
    int part; /* of parts: this FFN rank's */
    int parts;
    uint64_t bytes_read;
};

/* Load part @a part of @a parts: the experts e with e mod parts == part of sparse layers, and
 * that slice of the width of dense ones. */
int ffn_weights_load(const char *dir, const struct model_config *config, int part, int parts,
                     load_progress_t progress, void *arg, struct ffn_weights **weights_p,
                     struct reason *reason);
void ffn_weights_free(struct ffn_weights *weights);

#endif
