/* SPDX-License-Identifier: Apache-2.0 */
/* The internal state of a context, for tests and fuzzers. */
#ifndef STEPAF_TEST_STATE_H
#define STEPAF_TEST_STATE_H

#include "core/ctx.h"

/* Return a digest of all that a message may change except the counters: plans, operations,
 * remote plans, batches, peers. */
uint64_t state_digest(const struct stepaf_ctx *ctx);

/* Check that the state is consistent; return NULL, or the inconsistency. */
const char *state_check(const struct stepaf_ctx *ctx);

#endif
