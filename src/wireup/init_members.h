/* SPDX-License-Identifier: Apache-2.0 */
/* Init's part for connections between members: once all hellos have arrived. */
#ifndef STEPAF_WIREUP_INIT_MEMBERS_H
#define STEPAF_WIREUP_INIT_MEMBERS_H

#include "core/ctx.h"
#include "wireup/hello.h"

/* Result of the exchange. */
struct stepaf_heard {
    const uint8_t *all;
    const size_t *offsets;
    const struct stepaf_hello *hellos;
    const uint8_t *roles;
};

/* Add the ranks that the settings reserve space for to those that have been started.
 * STEPAF_ERR_SETTING. */
stepaf_status_t stepaf_init_make_room(struct stepaf_ctx *ctx);
/* Let processes take lost ranks' places, if the job has a secret. */
stepaf_status_t stepaf_init_let_ask(struct stepaf_ctx *ctx);
/* Give the members each other's contacts, if all have one. A missing contact is reported when it is
 * needed. */
void stepaf_init_meet(struct stepaf_ctx *ctx, const struct stepaf_heard *heard);

#endif
