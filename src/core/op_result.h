/* SPDX-License-Identifier: Apache-2.0 */
/* The result of an operation. */
#ifndef STEPAF_CORE_OP_RESULT_H
#define STEPAF_CORE_OP_RESULT_H

#include "core/op.h"

/* All parts of an operation on a stream are over. @a peer: index of the one that failed, or -1. */
void stepaf_op_end(struct stepaf_op *op, stepaf_status_t status, int peer);
/* The operation's result as a status with its detail set. */
stepaf_status_t stepaf_op_result(struct stepaf_op *op);

#endif
