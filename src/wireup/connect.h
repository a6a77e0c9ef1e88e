/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_WIREUP_CONNECT_H
#define STEPAF_WIREUP_CONNECT_H

#include "wireup/advert.h"

/* Open every transport that is admitted and works here; once per context. */
stepaf_status_t stepaf_transports_open(struct stepaf_ctx *ctx);

/* Close those that no link uses: at the end of the first commit. What they had pinned for the GPU is
 * pinned again, if it can be: else the status of that. */
stepaf_status_t stepaf_transports_trim(struct stepaf_ctx *ctx);

/* Connect and import by the adverts of all ranks (indexed by world rank), as far as this rank can
 * do it alone: it waits for nobody. */
stepaf_status_t stepaf_peers_connect(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts);

/* The transport of this link does not do, @a why: take this lesser one, which the peer has taken or
 * will take, or if that cannot be, one that is less still. */
stepaf_status_t stepaf_peer_fall_back(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                      const struct stepaf_advert *advert,
                                      struct stepaf_transport *transport, const char *why);

/* First commit: have both ends of each link take the same transport, wait until all links of all
 * ranks are up, and let all fail if one is not. @a own is this rank's result so far; returns that
 * if it is a failure, or another rank's, or STEPAF_OK. @a offsets: room for one more than there are
 * ranks. @a began_ns: when all had met before the connects; a rank that has failed gives the others
 * in proportion to what has passed since to hear of it. */
stepaf_status_t stepaf_ranks_agree(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                   stepaf_status_t own, size_t *offsets, int64_t began_ns,
                                   int64_t deadline_ns);

/* In a commit that may take peers back: open the transports that can, and that the first commit has
 * closed, and make all of these ready for it. False: there is none. */
bool stepaf_transports_reopen(struct stepaf_ctx *ctx);

/* What the peer offers cannot be had, as the last error says. Whether the commit goes on without
 * it: it has ended meanwhile, or is given up, since it has only just returned. It is lost then. */
bool stepaf_peer_may_lack(struct stepaf_peer *peer);

/* Whether this commit makes a link to the peer, since it has returned, or this process has. */
bool stepaf_peer_is_new(const struct stepaf_peer *peer);

#endif
