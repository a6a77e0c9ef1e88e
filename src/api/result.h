/* SPDX-License-Identifier: Apache-2.0 */
/* The status of one peer's part, and of one tensor, of an operation. */
#ifndef STEPAF_API_RESULT_H
#define STEPAF_API_RESULT_H

#include "core/op.h"

/* Return the status as stepaf_request_peer does. */
stepaf_status_t stepaf_part_status(struct stepaf_op *op, uint32_t p);
/* Return the status as stepaf_request_tensor does. */
stepaf_status_t stepaf_tensor_status(struct stepaf_op *op, uint32_t index);

#endif
