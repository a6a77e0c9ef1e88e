/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks decide together, through the program's own channel. */
#ifndef DECODE_AGREE_H
#define DECODE_AGREE_H

#include <stddef.h>
#include <stdint.h>

#include "launch.h"
#include "reason.h"

/* Learn whether all ranks have come this far well. @a result is this rank's, 0 or -1 with
 * *reason; @a digest has to be the same on all that have. Returns 0; or -1 on every rank, with
 * the same *reason: that of the first rank which has one. */
int agree(struct launch *launch, int result, uint64_t digest, int64_t timeout_us,
          struct reason *reason);

/* Every rank's bytes, one after the other in rank order: *all_p for free(), and *offsets_p
 * likewise, where each starts, and the total. */
int agree_gather(struct launch *launch, const void *bytes, size_t length, int64_t timeout_us,
                 void **all_p, size_t **offsets_p, struct reason *reason);

#endif
