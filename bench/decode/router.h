/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of experts for each row, and their weights. */
#ifndef DECODE_ROUTER_H
#define DECODE_ROUTER_H

#include <stdint.h>

#include "model_config.h"

/* Choose the experts of @a rows rows.
 * @param router     [experts, hidden]
 * @param normed     [rows, hidden]: hidden states after the layer's second norm
 * @param work       [rows, experts]: left with the experts' probabilities
 * @param ids_p      [rows, experts_chosen], the largest weight first
 * @param weights_p  [rows, experts_chosen] */
void router_choose(const struct model_config *config, const float *router, const float *normed,
                   int rows, float *work, int32_t *ids_p, float *weights_p);

#endif
