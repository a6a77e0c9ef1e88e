/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on lost ranks: whether a commit goes on without them. */
#ifndef STEPAF_WIREUP_LOST_H
#define STEPAF_WIREUP_LOST_H

#include "wireup/advert.h"

/* By the adverts of those who are there: the same at all of them. STEPAF_ERR_PEER_LOST: some rank refuses, which is
 * what happens unless it is told otherwise, or a role has no ranks any more. */
stepaf_status_t stepaf_lost_check(const struct stepaf_ctx *ctx,
                                  const struct stepaf_advert *adverts);

#endif
