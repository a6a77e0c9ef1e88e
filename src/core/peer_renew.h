/* SPDX-License-Identifier: Apache-2.0 */
/* Resetting a peer: another process takes its place, or it cannot be reached. */
#ifndef STEPAF_CORE_PEER_RENEW_H
#define STEPAF_CORE_PEER_RENEW_H

struct stepaf_peer;

/* The peer cannot be reached, and is lost. A link that it had is disconnected. */
void stepaf_peer_cut(struct stepaf_peer *peer, const char *reason);
/* Another process takes the lost peer's place: nothing is left of the previous one. */
void stepaf_peer_renew(struct stepaf_peer *peer);
#endif
