/* SPDX-License-Identifier: Apache-2.0 */
/* Find which of several rails was the last with its share of a message. */
#ifndef STEPAF_TRANSPORT_LAST_RAIL_H
#define STEPAF_TRANSPORT_LAST_RAIL_H

#include "transport/transport.h"

/* Report to up->held_up a message that is about to be delivered: @a msg, or the 32 bits @a imm if
 * that is NULL. @a came: when the last share arrived over each of @a n rails, in ticks; 0: none
 * has. If at most one rail has a share, there is nothing to report. */
void stepaf_tell_last_rail(struct stepaf_link *link, const struct stepaf_msg *msg, uint32_t imm,
                           const uint64_t *came, unsigned n);

#endif
