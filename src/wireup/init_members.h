/* SPDX-License-Identifier: Apache-2.0 */
/* Init's part for members that call each other: when all hellos are there. */
#ifndef STEPAF_WIREUP_INIT_MEMBERS_H
#define STEPAF_WIREUP_INIT_MEMBERS_H

#include "core/ctx.h"
#include "wireup/hello.h"

/* What the exchange has brought. */
struct stepaf_heard {
    const uint8_t *all;
    const size_t *offsets;
    const struct stepaf_hello *hellos;
    const uint8_t *roles;
};

/* Add the ranks that the settings keep room for to those that have been started.
 * STEPAF_ERR_SETTING. */
stepaf_status_t stepaf_init_make_room(struct stepaf_ctx *ctx);
/* A job that has a secret lets processes take lost ranks' places. */
stepaf_status_t stepaf_init_let_ask(struct stepaf_ctx *ctx);
/* All know now where members can be called, if all can. What is missing for that is told when it is
 * missed. */
void stepaf_init_meet(struct stepaf_ctx *ctx, const struct stepaf_heard *heard);

#endif
