/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of verdicts: an attention rank asks for times, an FFN rank reports them and is notified
 * of the verdict. */
#ifndef STEPAF_VERDICT_ASK_H
#define STEPAF_VERDICT_ASK_H

#include "verdict/verdict.h"

/* Ask the peer of @a one. Return false if that is impossible. */
bool stepaf_case_ask(struct stepaf_verdict_state *state, struct stepaf_verdict_case *one,
                     uint64_t now);
/* Decide or learn without the peer's times, which have not arrived. */
void stepaf_case_give_up(struct stepaf_verdict_state *state, struct stepaf_verdict_case *one);
/* Return how long before @a at (ticks) this rank had not polled. */
uint64_t stepaf_watch_gap_before(const struct stepaf_watch *watch, uint64_t at);
/* Implements stepaf_watch_ops.take. */
void stepaf_verdict_take(struct stepaf_watch *watch, struct stepaf_peer *peer,
                         const struct stepaf_msg *msg);

#endif
