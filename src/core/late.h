/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are complete before all peers have answered, and what late peers owe.
 *
 * A peer that has not released a slot is left out of the next operation that uses the slot: its
 * part there is LEFT_OUT, and held; owed says which operation the peer is still about. The other
 * peers' parts of the slot are free, since destinations and receive buffers are each peer's own. */
#ifndef STEPAF_CORE_LATE_H
#define STEPAF_CORE_LATE_H

#include "core/key.h"
#include "core/op.h"
#include "core/plan.h"
#include "wire/msg.h"

/* The peer has released the slot, for whichever operation it held it. */
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

/* From the next start on, @a n answers complete an operation of the plan; 0, or as many as there
 * are peers: all. The operation waits for the others for @a patience_us. */
void stepaf_plan_need(struct stepaf_plan_obj *plan, uint32_t n, int64_t patience_us);
/* Whether the next operation must leave out peer @a p: it has not released the slot, or its answer
 * could be mistaken for one that it owes, since 32 bits have only the end of a sequence. */
bool stepaf_late_is_out(const struct stepaf_plan_obj *plan, uint32_t p);
/* Leave these peers out of the plan's next operation. */
void stepaf_late_leave_out(struct stepaf_plan_obj *plan);
/* The peer will not answer what it owes, and no longer holds the slot. */
void stepaf_late_forget(struct stepaf_op *op, struct stepaf_op_peer *op_peer);
/* Accept an answer or a release that is owed. False: it is not owed. */
bool stepaf_late_take(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* The first peer whose answer or release, to this operation or to one before in the slot, is still
 * to come; NULL: there is none. */
const struct stepaf_peer *stepaf_late_first(const struct stepaf_op *op);

#endif
