/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_WIREUP_CONNECT_H
#define STEPAF_WIREUP_CONNECT_H

#include "wireup/advert.h"

/* Open every transport that is admitted and works here; once per context. */
stepaf_status_t stepaf_transports_open(struct stepaf_ctx *ctx);

/* Close those that no link uses: at the end of the first commit. */
void stepaf_transports_trim(struct stepaf_ctx *ctx);

/* Connect and import by the adverts of all ranks (indexed by world rank). Waits for peers where
 * a transport has to. */
stepaf_status_t stepaf_peers_connect(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                     int64_t deadline_ns);

/* The peer has taken another transport than this end, which follows. */
stepaf_status_t stepaf_peer_fall_back(struct stepaf_ctx *ctx, struct stepaf_peer *peer,
                                      const struct stepaf_advert *advert,
                                      struct stepaf_transport *transport);

/* Where some transport asks for it, let nobody send before all have connected, and let all fail if one
 * could not: @a own is this rank's result. Returns that, or another rank's failure. Where two ends have
 * taken different transports, they agree on one. First commit. */
stepaf_status_t stepaf_ranks_agree(struct stepaf_ctx *ctx, const struct stepaf_advert *adverts,
                                   stepaf_status_t own, int64_t deadline_ns);

#endif
