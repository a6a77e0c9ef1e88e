/* SPDX-License-Identifier: Apache-2.0 */
/* What each member says of others, behind its advert: who leaves, and of processes that want lost
 * ranks' places whether it can take any, in which of its peers', and, as a guest's home, what the
 * guest says. */
#ifndef STEPAF_WIREUP_RETURNS_SAY_H
#define STEPAF_WIREUP_RETURNS_SAY_H

#include "core/ctx.h"
#include "wireup/advert.h"

/* In a commit at a member: make the transports able to take peers back, if there is somebody to
 * take back, and find out whom this rank can. Guests that it cannot take are told why. */
void stepaf_returns_prepare(struct stepaf_ctx *ctx);
/* Write what there is to say. */
void stepaf_returns_pack(const struct stepaf_ctx *ctx, struct stepaf_pack *pack);
/* Whether it has heard of @a rank that it leaves. */
bool stepaf_returns_says_leaving(const struct stepaf_advert *advert, int rank);
/* Whether the rank that has said this can take back the one that @a place stands for, and wants
 * to. */
bool stepaf_returns_is_willing(const struct stepaf_advert *advert,
                               const struct stepaf_advert *place);
/* What it tells of the guest that wants the place of @a rank; NULL: nothing. */
const void *stepaf_returns_find(const struct stepaf_advert *advert, int rank, uint64_t *id_p,
                                uint64_t *bytes_p);

#endif
