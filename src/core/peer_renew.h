/* SPDX-License-Identifier: Apache-2.0 */
/* Resetting a peer: another process takes its place, or the peer cannot be reached. */
#ifndef STEPAF_CORE_PEER_RENEW_H
#define STEPAF_CORE_PEER_RENEW_H

struct stepaf_peer;

/* Mark a peer that cannot be reached as lost. Disconnects its link, if any. */
void stepaf_peer_cut(struct stepaf_peer *peer, const char *reason);
/* Reset a lost peer for another process in its place: nothing is kept of the previous process. */
void stepaf_peer_renew(struct stepaf_peer *peer);
#endif
