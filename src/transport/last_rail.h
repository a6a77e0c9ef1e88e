/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several rails was the last with its share of a message. */
#ifndef STEPAF_TRANSPORT_LAST_RAIL_H
#define STEPAF_TRANSPORT_LAST_RAIL_H

#include "transport/transport.h"

/* Tell up->held_up of a message that is about to be delivered: @a msg, or NULL where it is the 32
 * bits @a imm. @a came: when its last share has come by each of @a n rails, in ticks; 0:
 * none has. If that is so of all but one, there is nothing to tell. */
void stepaf_tell_last_rail(struct stepaf_link *link, const struct stepaf_msg *msg, uint32_t imm,
                           const uint64_t *came, unsigned n);

#endif
