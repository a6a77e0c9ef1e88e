/* SPDX-License-Identifier: Apache-2.0 */
/* One turn of a call that waits. */
#ifndef STEPAF_API_ADVANCE_H
#define STEPAF_API_ADVANCE_H

#include "core/wait.h"

/* Make progress, and call the handler for batches that have arrived, with the lock released
 * meanwhile. The lock is held. Return false when @a timeout_us is over. */
bool stepaf_api_advance(struct stepaf_ctx *ctx, struct stepaf_waiter *waiter, int64_t timeout_us);

#endif
