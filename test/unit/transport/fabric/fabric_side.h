/* SPDX-License-Identifier: Apache-2.0 */
/* Sides of transports over fabrics, and what is exchanged between them to see that nothing depends on order. */
#ifndef STEPAF_TEST_FABRIC_SIDE_H
#define STEPAF_TEST_FABRIC_SIDE_H

#include "transport/fabric/link.h"
#include "transport/side.h"

/* Sides of side_ops, on nodes of their own. */
void fabric_open(struct side *side, unsigned n_peers);
/* Join them: @a one's peer @a peer is @a other, which knows it by @a slot. */
void fabric_join(struct side *one, uint32_t peer, struct side *other, uint32_t slot);
/* Prove all links of these, and go on as behind the first commit. */
void fabric_prove(struct side *const *sides, unsigned n);
struct stepaf_fabric *fabric_of(const struct side *side);
struct stepaf_fabric_link *fabric_link(const struct side *side, uint32_t peer);
/* Registered memory of a side's. */
struct stepaf_mem *fabric_memory(struct side *side, size_t bytes);
/* Let both go on until the first has @a n messages, or one loses a peer; false: it has not. */
bool fabric_until_messages(struct side *to, struct side *from, unsigned n);

/* fabric_order.c: three sides, a link from the first to each other one, both ways. Each byte of each operation is
 * looked at when its message is delivered. */
enum { FABRIC_SIDES = 3 };
extern struct side fabric_sides[FABRIC_SIDES];
void fabric_order_begin(void);
void fabric_order_exchange(uint32_t ops);
/* @a n_dropped_p: what made no sense to a side; NULL: there must be none. */
void fabric_order_end(uint64_t *n_dropped_p);
/* How many operations: FABRIC_OPS, or as usual. */
uint32_t fabric_order_ops(uint32_t usual);

#endif
