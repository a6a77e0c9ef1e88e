/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside a context, as tests and fuzzers look at it. */
#ifndef STEPAF_TEST_STATE_H
#define STEPAF_TEST_STATE_H

#include "core/ctx.h"

/* Digest of all that a message may change but the counters: plans, operations, remote plans,
 * batches, peers. */
uint64_t state_digest(const struct stepaf_ctx *ctx);

/* Look whether everything fits together; return NULL, or what does not. */
const char *state_check(const struct stepaf_ctx *ctx);

#endif
