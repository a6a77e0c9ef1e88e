/* SPDX-License-Identifier: Apache-2.0 */
/* Cards: what a process that takes a lost rank's place (a guest) is told of each rank, and what it
 * tells of itself: contact, role, node and hello. */
#ifndef STEPAF_WIREUP_RETURN_CARD_H
#define STEPAF_WIREUP_RETURN_CARD_H

#include "core/ctx.h"
#include "wireup/hello.h"

/* Keep the card of a rank for guests. Return false if out of memory. */
bool stepaf_return_card_keep(struct stepaf_ctx *ctx, int rank, const struct stepaf_hello *hello,
                             const void *blob, size_t bytes, int role);
/* Read a card: the rank's own words, the same as a hello, both pointing into the card, and its
 * role. Return false if it is malformed. */
bool stepaf_return_card_read(const void *card, size_t bytes, struct stepaf_unpack *words_p,
                             struct stepaf_hello *hello_p, int *role_p);

#endif
