/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that both parts of the consensus machine use. */
#ifndef STEPAF_BOOT_CONSENSUS_COMMON_H
#define STEPAF_BOOT_CONSENSUS_COMMON_H

#include "boot/consensus/consensus.h"

/* Return whether the rank is a member, and not lost. */
static inline bool stepaf_consensus_is_there(const struct stepaf_consensus *consensus, int rank)
{
    return consensus->is_member[rank] && !stepaf_consensus_has_lost(consensus, rank);
}

/* Return the ballot under which a rank leads. Ballots are in the order in which ranks lead: all
 * other members before those that are new. */
static inline uint32_t stepaf_consensus_ballot(const struct stepaf_consensus *consensus, int rank)
{
    return (uint32_t)(rank + 1 + (consensus->is_new[rank] ? consensus->size : 0));
}

/* Return the rank that leads under a ballot. */
static inline int stepaf_consensus_ballot_rank(const struct stepaf_consensus *consensus,
                                               uint32_t ballot)
{
    return (int)((ballot - 1) % (uint32_t)consensus->size);
}

/* Return the leader: the first member that is not lost and not new; if there is none, the first
 * that is new. */
int stepaf_consensus_leader(const struct stepaf_consensus *consensus);

void stepaf_consensus_drop(struct stepaf_consensus_blob *blob);
/* Fail for lack of memory: this rank sends nothing more. */
void stepaf_consensus_starve(struct stepaf_consensus *consensus);
/* Resign: this rank cannot go on, and no rank is to wait for it. */
void stepaf_consensus_resign(struct stepaf_consensus *consensus);
/* Keep a copy in place of the old contents. Returns false if there is no memory; the decision has
 * then failed. */
bool stepaf_consensus_keep(struct stepaf_consensus *consensus, struct stepaf_consensus_blob *blob,
                           const void *data, size_t bytes);

/* Begin a message of this rank. */
struct stepaf_consensus_message stepaf_consensus_begin(const struct stepaf_consensus *consensus,
                                                       enum stepaf_consensus_kind kind,
                                                       uint32_t ballot);
/* Send a message to all members that are not lost. */
void stepaf_consensus_say_all(struct stepaf_consensus *consensus,
                              const struct stepaf_consensus_message *message);
/* Send the decision @a number, this one or the previous one, to a rank that has not accepted it; @a
 * to -1: to all. */
void stepaf_consensus_tell(struct stepaf_consensus *consensus, int to, uint32_t number);

#endif
