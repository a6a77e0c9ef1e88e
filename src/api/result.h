/* SPDX-License-Identifier: Apache-2.0 */
/* What one peer's part of an operation has come to. */
#ifndef STEPAF_API_RESULT_H
#define STEPAF_API_RESULT_H

#include "core/op.h"

/* As of stepaf_request_peer. */
stepaf_status_t stepaf_part_status(struct stepaf_op *op, uint32_t p);
/* As of stepaf_request_tensor. */
stepaf_status_t stepaf_tensor_status(struct stepaf_op *op, uint32_t index);

#endif
