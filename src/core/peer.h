/* SPDX-License-Identifier: Apache-2.0 */
/* Giving a peer up. */
#ifndef STEPAF_CORE_PEER_H
#define STEPAF_CORE_PEER_H

struct stepaf_peer;

/* Give a peer up by this rank's own decision: the peer may be there, and writing. */
void stepaf_peer_fail(struct stepaf_peer *peer, const char *reason);

#endif
