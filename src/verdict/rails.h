/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several rails was late with a message. Transports report each message that came over
 * several rails. */
#ifndef STEPAF_VERDICT_RAILS_H
#define STEPAF_VERDICT_RAILS_H

#include "verdict/verdict.h"

/* Implements stepaf_upcalls.held_up. */
void stepaf_verdict_held_up(struct stepaf_upcalls *up, struct stepaf_link *link,
                            const struct stepaf_msg *msg, uint32_t imm, unsigned rail,
                            uint64_t ticks);
/* Return the late rail of a START or RESPONSE of peer @a p. */
struct stepaf_verdict_late_rail stepaf_verdict_find_rail(const struct stepaf_verdict_state *state,
                                                         uint32_t p, uint32_t plan, uint32_t seq);

#endif
