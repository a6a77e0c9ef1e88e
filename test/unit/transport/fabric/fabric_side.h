/* SPDX-License-Identifier: Apache-2.0 */
/* Sides of transports over fabrics, and what is exchanged between them to see that nothing depends
 * on order. */
#ifndef STEPAF_TEST_FABRIC_SIDE_H
#define STEPAF_TEST_FABRIC_SIDE_H

#include "transport/fabric/link.h"
#include "transport/side.h"

/* Sides of side_ops, on nodes of their own. */
void fabric_open(struct side *side, unsigned n_peers);
/* Join them: @a one's peer @a peer is @a other, which knows it by @a slot. @a one is an attention
 * rank. */
void fabric_join(struct side *one, uint32_t peer, struct side *other, uint32_t slot);
/* Prove all links of these, and go on as behind the first commit. */
void fabric_prove(struct side *const *sides, unsigned n);
struct stepaf_fabric *fabric_of(const struct side *side);
struct stepaf_fabric_link *fabric_link(const struct side *side, uint32_t peer);
/* Registered memory of a side's. */
struct stepaf_mem *fabric_memory(struct side *side, size_t bytes);
/* Let both go on until the first has @a n messages, or one loses a peer; false: it has not. */
bool fabric_until_messages(struct side *to, struct side *from, unsigned n);

/* Open three sides: the first has a link to each of the others, proven. */
void fabric_open_three(struct side *const *sides);
/* A message each way over a link: it is delivered, and nothing else is. */
void fabric_check_link(struct side *one, uint32_t peer, struct side *other);
/* The same of a pair of sides whose transport may have no room. False: it was not delivered. */
bool fabric_exchange(struct side *one, struct side *other, uint32_t seq);
/* Let sides take in what there is. */
void fabric_take_in(struct side *const *sides, unsigned n);

/* fabric_asks.c: what each of these transports is asked in the same way. */
void fabric_ask_used_if_listed(const struct stepaf_transport_ops *ops);
/* Two sides that are not connected yet: the first notices that the other's process has ended.
 * Closes them. */
void fabric_ask_process_ends(struct side *one, struct side *other);
/* A side whose peers take in nothing loses all @a n of them in the time that is set. */
void fabric_ask_silence_ends(struct side *side, unsigned n);
/* Sides whose time-outs are short, as in a commit that waits for others: peers are looked after,
 * links are not read. */
void fabric_ask_unread_lives(struct side *one, struct side *other);
/* Who has not looked for long takes nobody for lost. */
void fabric_ask_unseen_lives(struct side *side);
/* Of what has come, only what the peer has said whose process has ended is delivered by a look. */
void fabric_ask_last_words(struct side *one, struct side *dying, struct side *other);
/* The peer has written, and closed: its last message is delivered though what a look writes to it is
 * refused. @a refuse: let all that is written from now on be refused. */
void fabric_ask_words_before_refusal(struct side *one, struct side *closing, void (*refuse)(void));
/* Why an address that was spoilt is refused; "": it is not. */
const char *fabric_connect_spoilt(struct side *one, struct side *other,
                                  void (*spoil)(struct stepaf_pack *pack));
/* @a live is run in a child that has closed descriptors 0 to 2, which stay free: 0. It asks
 *   fabric_low_are_free. */
void fabric_ask_low_numbers(int (*live)(void));
bool fabric_low_are_free(void);

/* fabric_starve.c: whatever allocation fails, nothing is left open or allocated. @a n_open: what
 * the made-up fabric has open; @a reset: make it anew. */
void fabric_ask_starved(const char *name, void (*reset)(void), const int *n_open);

/* fabric_order.c: three sides, a link from the first to each other one, both ways. Each byte of
 * each operation is looked at when its message is delivered. */
enum { FABRIC_SIDES = 3 };
/* What the memory is, and where its bytes can be touched: a test may put others here. */
extern struct stepaf_mem *(*fabric_order_memory)(struct side *side, size_t bytes);
extern uint8_t *(*fabric_order_view)(const void *at);
extern struct side fabric_sides[FABRIC_SIDES];
void fabric_order_begin(void);
void fabric_order_exchange(uint32_t ops);
/* @a n_dropped_p: what made no sense to a side; NULL: there must be none. */
void fabric_order_end(uint64_t *n_dropped_p);
/* How many operations: FABRIC_OPS, or as usual. */
uint32_t fabric_order_ops(uint32_t usual);

#endif
