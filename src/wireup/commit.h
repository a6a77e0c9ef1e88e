/* SPDX-License-Identifier: Apache-2.0 */
/* The commit: puts what was declared into force at all ranks, or at none. */
#ifndef STEPAF_WIREUP_COMMIT_H
#define STEPAF_WIREUP_COMMIT_H

#include <stepaf/status.h>

struct stepaf_ctx;
struct stepaf_commit_will;

stepaf_status_t stepaf_core_commit(struct stepaf_ctx *ctx, const struct stepaf_commit_will *will,
                                   int64_t deadline_ns);

#endif
