/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that complete before all peers have answered, and what late peers owe.
 *
 * A peer that has not released a slot is left out of the next operation that uses the slot. The
 * peer's part of that operation is LEFT_OUT and held; owed names the operation that the peer is
 * still working on. The other peers' parts of the slot are free: destinations and receive
 * buffers are separate for each peer. */
#ifndef STEPAF_CORE_LATE_H
#define STEPAF_CORE_LATE_H

#include "core/key.h"
#include "core/op.h"
#include "core/plan.h"
#include "wire/msg.h"

/* Note that the peer has released the slot, whichever operation it held the slot for. */
static inline void stepaf_op_give_back(struct stepaf_op *op, struct stepaf_op_peer *op_peer)
{
    if (!op_peer->held)
        return;
    op_peer->held = false;
    if (--op->n_held)
        return;
    for (uint32_t i = 0; i < op->plan->n_push; i++)
        op->plan->push[i].key->busy &= ~op->bit;
}

/* Let @a n answers complete an operation of the plan, from the next start on. 0, or the number of
 * peers: all. An operation waits @a patience_us for the other answers. */
void stepaf_plan_need(struct stepaf_plan_obj *plan, uint32_t n, int64_t patience_us);
/* Return whether the next operation must do without peer @a p: the peer has not released the slot,
 * or its answers could be confused with one that it owes (32 bits carry only the end of a
 * sequence). */
bool stepaf_late_is_out(const struct stepaf_plan_obj *plan, uint32_t p);
/* Leave these peers out of the plan's next operation. */
void stepaf_late_leave_out(struct stepaf_plan_obj *plan);
/* Note that the peer will not answer what it owes, and no longer holds the slot. */
void stepaf_late_forget(struct stepaf_op *op, struct stepaf_op_peer *op_peer);
/* Take an answer or a release that is owed. Return false if it is not owed. */
bool stepaf_late_take(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* Return the first peer whose answer or release is still outstanding, for this operation or an
 * earlier one in the slot; NULL: none. */
const struct stepaf_peer *stepaf_late_first(const struct stepaf_op *op);

#endif
