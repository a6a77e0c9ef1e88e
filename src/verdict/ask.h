/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: an attention rank asks for times, an FFN rank tells them, and is told who was late. */
#ifndef STEPAF_VERDICT_ASK_H
#define STEPAF_VERDICT_ASK_H

#include "verdict/verdict.h"

/* Ask the peer of @a one. False: it cannot be. */
bool stepaf_case_ask(struct stepaf_verdict_state *state, struct stepaf_verdict_case *one,
                     uint64_t now);
/* Decide, or learn, without the peer's times: they have not come. */
void stepaf_case_give_up(struct stepaf_verdict_state *state, struct stepaf_verdict_case *one);
/* How long before @a at, ticks, this rank had not polled. */
uint64_t stepaf_watch_gap_before(const struct stepaf_watch *watch, uint64_t at);
/* stepaf_watch_ops.take */
void stepaf_verdict_take(struct stepaf_watch *watch, struct stepaf_peer *peer,
                         const struct stepaf_msg *msg);

#endif
