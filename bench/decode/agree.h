/* SPDX-License-Identifier: Apache-2.0 */
/* Collective decisions of all ranks, through the program's own channel. */
#ifndef DECODE_AGREE_H
#define DECODE_AGREE_H

#include <stddef.h>
#include <stdint.h>

#include "launch.h"
#include "reason.h"

/* Learn whether all ranks have succeeded so far. @a result is this rank's, 0 or -1 with *reason;
 * @a digest must be the same on all ranks that have succeeded. Returns 0; or -1 on every rank,
 * with the *reason of the first rank that has one. */
int agree(struct launch *launch, int result, uint64_t digest, int64_t timeout_us,
          struct reason *reason);

/* Gather every rank's bytes in rank order: *all_p for free(), likewise *offsets_p: where each
 * rank's bytes start, and the total. */
int agree_gather(struct launch *launch, const void *bytes, size_t length, int64_t timeout_us,
                 void **all_p, size_t **offsets_p, struct reason *reason);

#endif
