/* SPDX-License-Identifier: Apache-2.0 */
/* What each member states in addition to its advert: which ranks leave; of guests, whether it can
 * admit any, in which of its peers' places, and, as a guest's home, the guest's hello and
 * advert. */
#ifndef STEPAF_WIREUP_RETURNS_SAY_H
#define STEPAF_WIREUP_RETURNS_SAY_H

#include "core/ctx.h"
#include "wireup/advert.h"

/* In a commit at a member: prepare the transports for returning peers, if a rank can be admitted,
 * and find out which ranks this rank can admit. Guests that it cannot admit are told why. */
void stepaf_returns_prepare(struct stepaf_ctx *ctx);
/* Write these statements. */
void stepaf_returns_pack(const struct stepaf_ctx *ctx, struct stepaf_pack *pack);
/* Return whether the member has heard that @a rank leaves. */
bool stepaf_returns_says_leaving(const struct stepaf_advert *advert, int rank);
/* Return whether the member can admit, and wants to admit, the rank that @a place stands for. */
bool stepaf_returns_is_willing(const struct stepaf_advert *advert,
                               const struct stepaf_advert *place);
/* Return what the member reports of the guest that wants the place of @a rank; NULL: nothing. */
const void *stepaf_returns_find(const struct stepaf_advert *advert, int rank, uint64_t *id_p,
                                uint64_t *bytes_p);

#endif
