/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank that goes by the rules can say, in whatever order it comes. */
#ifndef STEPAF_BOOT_CONSENSUS_RULES_H
#define STEPAF_BOOT_CONSENSUS_RULES_H

#include "boot/consensus/consensus.h"

/* Whether such a rank says that at all. What is wrong must not become a decision. */
bool stepaf_consensus_is_by_the_rules(const struct stepaf_consensus *consensus, int from,
                                      const struct stepaf_consensus_message *message);
/* Whether so many lives can be over. Others may have come to one decision more than this rank, by
 * which a rank has had one life more; to a second one they do not come without this rank, unless it
 * is out. */
bool stepaf_consensus_can_be_lost(const struct stepaf_consensus *consensus,
                                  const struct stepaf_consensus_message *message);

#endif
