/* SPDX-License-Identifier: Apache-2.0 */
/* Members that wait for each other outside of commits, once the bootstrap does not know all of them
 * any more: each says some words, or none, to the first of them, which says to all what all have
 * said. There are some channels, each with one such gathering after the other. Who has not come by
 * a deadline can go on waiting, since the epoch's next one begins only when this one is over. */
#ifndef STEPAF_BOOT_MEMBER_NET_GATHER_H
#define STEPAF_BOOT_MEMBER_NET_GATHER_H

#include "boot/member_net.h"

enum { STEPAF_MEMBER_GATHERINGS = 4 };

/* Who gathers on a channel: the same, in the same order, at all of them, this rank among them. */
struct stepaf_member_group {
    int channel;
    const int *ranks;
    int n;
};

/* Say the words of this rank in the next gathering of this epoch. They are copied. If the last one
 * is not over, it goes on, with the words that were said in it. False: no memory. */
bool stepaf_member_gather_begin(struct stepaf_member_net *net,
                                const struct stepaf_member_group *group, uint32_t epoch,
                                const void *words, size_t bytes);
/* What has come of it: STEPAF_OK; STEPAF_INPROGRESS, and *rank_p has not come, as far as is known;
 * STEPAF_ERR_PEER_LOST, of *rank_p, which is this rank itself if others have given it up;
 * STEPAF_ERR_NO_MEMORY. No error is set. */
stepaf_status_t stepaf_member_gather_look(struct stepaf_member_net *net,
                                          const struct stepaf_member_group *group, int *rank_p);
/* At the first of the group: tell those who are there whom it waits for. */
void stepaf_member_gather_hint(struct stepaf_member_net *net,
                               const struct stepaf_member_group *group, int rank);
/* After STEPAF_OK, where somebody had words: what all have said, for stepaf_member_net_deal. */
const struct stepaf_consensus_blob *stepaf_member_gather_value(const struct stepaf_member_net *net,
                                                               int channel);

#endif
