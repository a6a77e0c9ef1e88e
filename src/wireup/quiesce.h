/* SPDX-License-Identifier: Apache-2.0 */
/* Quiescing before a commit. */
#ifndef STEPAF_WIREUP_QUIESCE_H
#define STEPAF_WIREUP_QUIESCE_H

#include <stdint.h>

#include <stepaf/status.h>

struct stepaf_ctx;

/* Send what still waits for space, wait until all peers have done the same, and keep other calls
 * out. STEPAF_ERR_STATE: something is in flight that a new epoch would cut off. */
stepaf_status_t stepaf_commit_quiesce(struct stepaf_ctx *ctx, int64_t deadline_ns);

#endif
