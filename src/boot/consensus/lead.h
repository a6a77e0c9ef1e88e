/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's part of the machine; stepaf_consensus_leader says who leads. */
#ifndef STEPAF_BOOT_CONSENSUS_LEAD_H
#define STEPAF_BOOT_CONSENSUS_LEAD_H

#include "boot/consensus/consensus.h"

void stepaf_consensus_lead_begin(struct stepaf_consensus *consensus);
/* Go on to the next step, if no answer is awaited any more. */
void stepaf_consensus_lead_on(struct stepaf_consensus *consensus);
/* Ask a rank again that has not answered: it may not have received the question. */
void stepaf_consensus_lead_again(struct stepaf_consensus *consensus, int to);
/* Take a rank's promise. */
void stepaf_consensus_lead_promise(struct stepaf_consensus *consensus, int from,
                                   const struct stepaf_consensus_message *message);
void stepaf_consensus_lead_drop(struct stepaf_consensus *consensus);
/* Conclude: the decision is made. */
void stepaf_consensus_conclude(struct stepaf_consensus *consensus);

#endif
