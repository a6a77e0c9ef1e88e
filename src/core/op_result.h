/* SPDX-License-Identifier: Apache-2.0 */
/* The result of an operation, as a status with its error text. */
#ifndef STEPAF_CORE_OP_RESULT_H
#define STEPAF_CORE_OP_RESULT_H

#include "core/op.h"

/* Conclude an operation on a stream, all parts of which have ended. @a peer: index of the peer that
 * has failed, or -1. */
void stepaf_op_end(struct stepaf_op *op, stepaf_status_t status, int peer);
/* Return the operation's result as a status, with its detail set. */
stepaf_status_t stepaf_op_result(struct stepaf_op *op);

#endif
