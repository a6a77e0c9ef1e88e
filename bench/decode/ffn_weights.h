/* SPDX-License-Identifier: Apache-2.0 */
/* The weights that an FFN rank needs, in float32: its experts, or its slice of dense FFNs. */
#ifndef DECODE_FFN_WEIGHTS_H
#define DECODE_FFN_WEIGHTS_H

#include "tensor_load.h"

/* One gated FFN, or a part of one: down(silu(gate(x)) * up(x)). */
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
    int part; /* this FFN rank's part, of parts */
    int parts;
    uint64_t bytes_read;
};

/* Load part @a part of @a parts: of sparse layers the experts e with e mod parts == part, of
 * dense layers that slice of the width. */
int ffn_weights_load(const char *dir, const struct model_config *config, int part, int parts,
                     load_progress_t progress, void *arg, struct ffn_weights **weights_p,
                     struct reason *reason);
void ffn_weights_free(struct ffn_weights *weights);

#endif
