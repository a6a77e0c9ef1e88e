/* SPDX-License-Identifier: Apache-2.0 */
/* A peer: what is known of its memory, and giving it up. */
#ifndef STEPAF_CORE_PEER_H
#define STEPAF_CORE_PEER_H

#include <stdint.h>

struct stepaf_peer;
struct stepaf_rmem;

/* Memory that the peer offers, by its number; NULL: there is no such. */
const struct stepaf_rmem *stepaf_peer_find_rmem(const struct stepaf_peer *peer, uint32_t id);
/* Give a peer up by this rank's own decision: the peer may be there, and writing. */
void stepaf_peer_fail(struct stepaf_peer *peer, const char *reason);

/* Forget the peer's memory. */
void stepaf_peer_release(struct stepaf_peer *peer);

#endif
