/* SPDX-License-Identifier: Apache-2.0 */
/* A peer without what it has had: another process takes its place, or there is no way to it. */
#ifndef STEPAF_CORE_PEER_RENEW_H
#define STEPAF_CORE_PEER_RENEW_H

struct stepaf_peer;

/* There is no way to the peer, and it is lost. A link that it has had is disconnected. */
void stepaf_peer_cut(struct stepaf_peer *peer, const char *reason);
/* Another process takes the lost peer's place: of the one before, nothing is left. */
void stepaf_peer_renew(struct stepaf_peer *peer);
#endif
