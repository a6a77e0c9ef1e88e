/* SPDX-License-Identifier: Apache-2.0 */
/* One FFN rank's part of a layer's FFN over some rows. */
#ifndef DECODE_FFN_H
#define DECODE_FFN_H

#include <stdint.h>

#include "ffn_weights.h"

/* Rows as they arrive from attention. */
struct ffn_input {
    int rows;
    int chosen;           /* experts of each row; unused in a dense layer */
    const float *hidden;  /* [rows, hidden] */
    const int32_t *ids;   /* [rows, chosen]; experts outside this part are skipped */
    const float *weights; /* [rows, chosen] */
};

/* Memory for intermediate values. */
struct ffn_work;

int ffn_work_create(const struct model_config *config, int max_rows, struct ffn_work **work_p,
                    struct reason *reason);
void ffn_work_destroy(struct ffn_work *work);

/* Compute out, the contribution of this part to the rows: [rows, hidden]. */
void ffn_run(const struct ffn_weights *weights, int layer, const struct ffn_input *input,
             int hidden, float *out_p, struct ffn_work *work);

#endif
