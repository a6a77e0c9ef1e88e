/* SPDX-License-Identifier: Apache-2.0 */
/* The check of lost and leaving ranks: whether a commit continues without them. */
#ifndef STEPAF_WIREUP_LOST_H
#define STEPAF_WIREUP_LOST_H

#include "wireup/advert.h"

/* Check the adverts of the ranks that take part, with the same outcome at all of them.
 * STEPAF_ERR_PEER_LOST: some rank refuses to continue, which is the default, or a role has no ranks
 * left. A rank that leaves needs no consent, but STEPAF_ERR_STATE: it is the last of its role. */
stepaf_status_t stepaf_lost_check(const struct stepaf_ctx *ctx,
                                  const struct stepaf_advert *adverts);
/* Treat leaving ranks as if they had not been in the exchange. */
void stepaf_lost_take_out(struct stepaf_ctx *ctx, struct stepaf_advert *adverts);

#endif
