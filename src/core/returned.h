/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that have returned in the commit that is in progress: how long this rank waits for them, and
 * that it goes on without them. */
#ifndef STEPAF_CORE_RETURNED_H
#define STEPAF_CORE_RETURNED_H

#include <stdbool.h>
#include <stdint.h>

struct stepaf_ctx;
struct stepaf_peer;

bool stepaf_returned_is(const struct stepaf_peer *peer);
/* Return the deadline for such peers: part of the time is for the others. */
int64_t stepaf_returned_until_ns(const struct stepaf_ctx *ctx, int64_t deadline_ns);
/* Return whether this rank continues without a failed peer, because it has only just returned. So
 * does a rank that has returned itself. The peer is lost then. */
bool stepaf_returned_go_on(struct stepaf_peer *peer);

#endif
