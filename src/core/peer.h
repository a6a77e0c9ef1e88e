/* SPDX-License-Identifier: Apache-2.0 */
/* Peers: look-up of their memory, and declaring a peer lost. */
#ifndef STEPAF_CORE_PEER_H
#define STEPAF_CORE_PEER_H

#include <stdint.h>

struct stepaf_peer;
struct stepaf_rmem;

/* Return memory that the peer offers, by its id; NULL: no such memory. */
const struct stepaf_rmem *stepaf_peer_find_rmem(const struct stepaf_peer *peer, uint32_t id);
/* Declare a peer lost by this rank's own decision: the peer may be alive, and writing. */
void stepaf_peer_fail(struct stepaf_peer *peer, const char *reason);

/* Return why the peer was lost; another process may have taken its place since. */
const char *stepaf_peer_why_lost(const struct stepaf_peer *peer);

/* Forget the peer's memory. */
void stepaf_peer_release(struct stepaf_peer *peer);

#endif
