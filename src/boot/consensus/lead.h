/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's part: the first of those that are there. */
#ifndef STEPAF_BOOT_CONSENSUS_LEAD_H
#define STEPAF_BOOT_CONSENSUS_LEAD_H

#include "boot/consensus/consensus.h"

void stepaf_consensus_lead_begin(struct stepaf_consensus *consensus);
/* Go on, if nobody is waited for any more. */
void stepaf_consensus_lead_on(struct stepaf_consensus *consensus);
/* Ask again one that has not answered, which may not have heard it. */
void stepaf_consensus_lead_again(struct stepaf_consensus *consensus, int to);
/* One has promised. */
void stepaf_consensus_lead_promise(struct stepaf_consensus *consensus, int from,
                                   const struct stepaf_consensus_message *message);
void stepaf_consensus_lead_drop(struct stepaf_consensus *consensus);
/* The decision is made. */
void stepaf_consensus_conclude(struct stepaf_consensus *consensus);

#endif
