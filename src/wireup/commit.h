/* SPDX-License-Identifier: Apache-2.0 */
/* The commit: what was declared comes into force at all ranks, or at none. */
#ifndef STEPAF_WIREUP_COMMIT_H
#define STEPAF_WIREUP_COMMIT_H

#include <stdbool.h>

#include <stepaf/status.h>

struct stepaf_ctx;

/* @a leaves_lost: go on without ranks that are lost, if all ranks say so; else they refuse it. @a admits: take
 * processes in their places, if all ranks say so. */
stepaf_status_t stepaf_core_commit(struct stepaf_ctx *ctx, bool leaves_lost, bool admits);

#endif
