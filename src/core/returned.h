/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that have returned in the commit that is in progress: how long this rank waits for them, and
 * that it continues without them. */
#ifndef STEPAF_CORE_RETURNED_H
#define STEPAF_CORE_RETURNED_H

#include <stdbool.h>
#include <stdint.h>

struct stepaf_ctx;
struct stepaf_peer;

bool stepaf_returned_is(const struct stepaf_peer *peer);
/* Return until when this rank waits for such peers. That is part of the time that the members'
 * commits have left, which is known once ranks have agreed on their links. At a rank that has
 * returned itself, its own deadline may be earlier. */
int64_t stepaf_returned_until_ns(const struct stepaf_ctx *ctx);
/* Return whether this rank continues without a failed peer, because it has only just returned. So
 * does a rank that has returned itself. The peer is lost then. */
bool stepaf_returned_go_on(struct stepaf_peer *peer);
/* The same when a wait for a silent peer has ended, but only if the peer's time is what has ended it:
 * not if that was this rank's own deadline, an interrupt or a finalize. */
bool stepaf_returned_is_late(struct stepaf_peer *peer, int64_t until_ns, int64_t deadline_ns);

#endif
