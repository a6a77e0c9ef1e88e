/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank that follows the rules can send, in whatever order messages arrive. */
#include "boot/consensus/rules.h"

#include "boot/consensus/common.h"

static bool is_value(const struct stepaf_consensus *consensus,
                     const struct stepaf_consensus_message *message)
{
    return message->value &&
           stepaf_consensus_value_read(message->value, message->value_bytes, NULL, consensus->size);
}

bool stepaf_consensus_is_by_the_rules(const struct stepaf_consensus *consensus, int from,
                                      const struct stepaf_consensus_message *message)
{
    bool is_leaders =
        message->ballot && stepaf_consensus_ballot_rank(consensus, message->ballot) == from;

    switch (message->kind) {
    case STEPAF_CONSENSUS_PREPARE:
        return is_leaders;
    case STEPAF_CONSENSUS_PROMISE:
        return message->accepted <= message->ballot &&
               (message->accepted ? is_value(consensus, message) : !message->value);
    case STEPAF_CONSENSUS_ACCEPT:
        return is_leaders && is_value(consensus, message);
    case STEPAF_CONSENSUS_DECIDED:
        return message->value ? is_value(consensus, message) : is_leaders;
    default:
        return true;
    }
}

bool stepaf_consensus_can_be_lost(const struct stepaf_consensus *consensus,
                                  const struct stepaf_consensus_message *message)
{
    for (int r = 0; r < consensus->size; r++)
        if (stepaf_consensus_gone_by(message, r) > (uint64_t)consensus->lives[r] + 1)
            return false;
    return true;
}
