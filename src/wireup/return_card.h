/* SPDX-License-Identifier: Apache-2.0 */
/* Cards: what a process that takes a lost rank's place is told of each rank, and says of itself. */
#ifndef STEPAF_WIREUP_RETURN_CARD_H
#define STEPAF_WIREUP_RETURN_CARD_H

#include "core/ctx.h"
#include "wireup/hello.h"

/* What guests are told of a rank. False: no memory. */
bool stepaf_return_card_keep(struct stepaf_ctx *ctx, int rank, const struct stepaf_hello *hello,
                             const void *blob, size_t bytes, int role);
/* What was told of it: what the rank has said itself, also as a hello, both within the card, and
 * its role. False: it is malformed. */
bool stepaf_return_card_read(const void *card, size_t bytes, struct stepaf_unpack *words_p,
                             struct stepaf_hello *hello_p, int *role_p);

#endif
