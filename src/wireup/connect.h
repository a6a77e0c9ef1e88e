/* SPDX-License-Identifier: Apache-2.0 */
/* Opening transports, connecting peers, and choosing the transport of each link. */
#ifndef STEPAF_WIREUP_CONNECT_H
#define STEPAF_WIREUP_CONNECT_H

#include "wireup/advert.h"

/* Open every transport that is admitted and works here. Called once per context. */
stepaf_status_t stepaf_transports_open(struct stepaf_ctx *ctx);

/* Release what the transports have prepared for the links of this commit, once all ranks have agreed
 * on their links, and before any rank sends. */
void stepaf_transports_shrink(struct stepaf_ctx *ctx);

/* Close the transports that no link uses, at the end of the first commit. Memory that they had
 * pinned for the GPU is pinned again; return the status of that. */
stepaf_status_t stepaf_transports_trim(struct stepaf_ctx *ctx);

/* Connect and import by the adverts of all ranks (indexed by world rank), as far as this rank can
 * do so alone. Waits for no other rank. */
stepaf_status_t stepaf_peers_connect(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts);

/* Replace the transport of this link, which fails for reason @a why, by the lower-ranked
 * @a transport, which the peer has taken or will take, or if that fails, by one ranked still
 * lower. */
stepaf_status_t stepaf_peer_fall_back(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                      const struct stepaf_advert *advert,
                                      struct stepaf_transport *transport, const char *why);

/* First commit: make both ends of each link take the same transport, wait until all links of all
 * ranks are up, and let all ranks fail if one link is not. @a own is this rank's result so far.
 * Return @a own if it is a failure, another rank's failure, or STEPAF_OK. @a offsets: space for the
 * number of ranks plus one. @a began_ns: when all had met before the connects; a rank that has
 * failed gives the others time to learn of it in proportion to the time since then. */
stepaf_status_t stepaf_ranks_agree(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                   stepaf_status_t own, size_t *offsets, int64_t began_ns,
                                   int64_t deadline_ns);

/* In a commit that may admit returning peers: reopen the transports that the first commit has
 * closed, where possible, and prepare all of them for returning peers. Return a bit for each that is
 * prepared, by its number in the registry; @a reason says why there are no others. */
uint32_t stepaf_transports_reopen(struct stepaf_ctx *ctx, char reason[STEPAF_REASON_MAX]);
/* Return whether a process in a lost peer's place may be reached by these transports: by one that
 * reaches other nodes, or the one that has reached the peer. Where no process had the place, one
 * that reaches this node alone suffices if no other is open. */
bool stepaf_peer_may_reconnect(const struct stepaf_peer *peer, uint32_t reopened);

/* Return whether the commit continues without what the peer offers, which is unavailable as the
 * last error says: the peer has ended meanwhile, or is declared lost because it has only just
 * returned. The peer is lost then. */
bool stepaf_peer_may_lack(struct stepaf_peer *peer);

/* Return whether this commit makes a link to the peer, because the peer or this process has
 * returned. */
bool stepaf_peer_is_new(const struct stepaf_peer *peer);

#endif
