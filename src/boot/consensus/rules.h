/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank that follows the rules can send, in whatever order messages arrive. */
#ifndef STEPAF_BOOT_CONSENSUS_RULES_H
#define STEPAF_BOOT_CONSENSUS_RULES_H

#include "boot/consensus/consensus.h"

/* Return whether such a rank can send the message. An error must not become a decision. */
bool stepaf_consensus_is_by_the_rules(const struct stepaf_consensus *consensus, int from,
                                      const struct stepaf_consensus_message *message);
/* Return whether so many lives can be over. Others may have reached one decision more than this
 * rank, by which a rank has had one more life. They do not reach a second one without this rank,
 * unless it is out. */
bool stepaf_consensus_can_be_lost(const struct stepaf_consensus *consensus,
                                  const struct stepaf_consensus_message *message);

#endif
