/* SPDX-License-Identifier: Apache-2.0 */
/* Gatherings: members wait for each other outside of commits, once the bootstrap no longer knows
 * all of them. Each member sends some words, or none, to the first of the group, which sends to all
 * what all have said. Each of the channels has one gathering after the other. A member whose
 * deadline has passed can go on waiting, since the epoch's next gathering begins only when this one
 * is over. */
#ifndef STEPAF_BOOT_MEMBER_NET_GATHER_H
#define STEPAF_BOOT_MEMBER_NET_GATHER_H

#include "boot/member_net.h"

enum { STEPAF_MEMBER_GATHERINGS = 4 };

/* The members that gather on a channel: the same ranks, in the same order, at all of them,
 * including this rank. */
struct stepaf_member_group {
    int channel;
    const int *ranks;
    int n;
};

/* Send the words of this rank in the next gathering of this epoch. They are copied. If the last
 * gathering is not over, it goes on, with the words that were sent in it. Returns false if there is
 * no memory. */
bool stepaf_member_gather_begin(struct stepaf_member_net *net,
                                const struct stepaf_member_group *group, uint32_t epoch,
                                const void *words, size_t bytes);
/* Return the state of the gathering: STEPAF_OK; STEPAF_INPROGRESS, and *rank_p has not arrived, as
 * far as is known; STEPAF_ERR_PEER_LOST for the loss of *rank_p, which is this rank itself if
 * others have declared it lost; STEPAF_ERR_NO_MEMORY. No error is set. */
stepaf_status_t stepaf_member_gather_look(struct stepaf_member_net *net,
                                          const struct stepaf_member_group *group, int *rank_p);
/* At the first of the group: tell those who are there which rank it waits for. */
void stepaf_member_gather_hint(struct stepaf_member_net *net,
                               const struct stepaf_member_group *group, int rank);
/* Return what all have said, for stepaf_member_net_deal. Valid after STEPAF_OK, if any rank had
 * words. */
const struct stepaf_consensus_blob *stepaf_member_gather_value(const struct stepaf_member_net *net,
                                                               int channel);

#endif
