/* SPDX-License-Identifier: Apache-2.0 */
/* The common clock of all ranks of a job. */
#ifndef STEPAF_CLOCK_H
#define STEPAF_CLOCK_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Return the current time of the common clock, in nanoseconds; -1 for an invalid handle.
 *
 *  The common clock is the monotonic clock of world rank 0's node: on that node, CLOCK_MONOTONIC
 *  itself. On other nodes it is estimated over the links, at each commit and ten times a second
 *  while ranks make progress. The clock is adjusted to the estimate so slowly that it never goes
 *  back, unless it is off by 100 ms or more, as before the first commit. stepaf_link_query reports
 *  how far the clock may be from a peer's.
 *
 *  The ranks of a mesh lane that has no rank on rank 0's node have no link to that node: their
 *  clock is that of the node of the lane's first rank.
 *
 *  Any thread. Does not block. */
STEPAF_API int64_t stepaf_clock_ns(stepaf_context_h ctx);

#ifdef __cplusplus
}
#endif
#endif
