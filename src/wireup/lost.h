/* SPDX-License-Identifier: Apache-2.0 */
/* The check of lost ranks, and of those that leave: whether a commit goes on without them. */
#ifndef STEPAF_WIREUP_LOST_H
#define STEPAF_WIREUP_LOST_H

#include "wireup/advert.h"

/* By the adverts of those who are there: the same at all of them. STEPAF_ERR_PEER_LOST: some rank
 * refuses, which is what happens unless it is told otherwise, or a role has no ranks any more. Who
 * leaves needs nobody's leave, but STEPAF_ERR_STATE: it is the last of its role. */
stepaf_status_t stepaf_lost_check(const struct stepaf_ctx *ctx,
                                  const struct stepaf_advert *adverts);
/* Whoever leaves is not there any more, as if it had not been in the exchange. */
void stepaf_lost_take_out(struct stepaf_ctx *ctx, struct stepaf_advert *adverts);

#endif
