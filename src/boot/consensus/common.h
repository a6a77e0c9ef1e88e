/* SPDX-License-Identifier: Apache-2.0 */
/* What both parts of the machine need. */
#ifndef STEPAF_BOOT_CONSENSUS_COMMON_H
#define STEPAF_BOOT_CONSENSUS_COMMON_H

#include "boot/consensus/consensus.h"

/* Whether the rank is a member, and not lost. */
static inline bool stepaf_consensus_is_there(const struct stepaf_consensus *consensus, int rank)
{
    return consensus->is_member[rank] && !stepaf_consensus_has_lost(consensus, rank);
}

/* The first that is there: who is to lead. */
int stepaf_consensus_leader(const struct stepaf_consensus *consensus);

void stepaf_consensus_drop(struct stepaf_consensus_blob *blob);
/* There was no memory: this rank has failed, and says nothing more. */
void stepaf_consensus_starve(struct stepaf_consensus *consensus);
/* Keep a copy in place of what was there. False: no memory, and the decision has failed. */
bool stepaf_consensus_keep(struct stepaf_consensus *consensus, struct stepaf_consensus_blob *blob,
                           const void *data, size_t bytes);

/* A message as this rank begins it. */
struct stepaf_consensus_message stepaf_consensus_begin(const struct stepaf_consensus *consensus,
                                                       enum stepaf_consensus_kind kind,
                                                       uint32_t ballot);
/* Say it to all that are there. */
void stepaf_consensus_say_all(struct stepaf_consensus *consensus,
                              const struct stepaf_consensus_message *message);
/* The decision @a number, this one or the one before, to one who has not accepted it; @a to -1: to
 * all. */
void stepaf_consensus_tell(struct stepaf_consensus *consensus, int to, uint32_t number);

#endif
