/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STEPAF_TRANSPORT_VERBS_SEND_H
#define STEPAF_TRANSPORT_VERBS_SEND_H

#include "transport/verbs/verbs.h"

enum { STEPAF_VERBS_CHAIN = STEPAF_MAX_TENSORS + 2 };

/* Work requests of one path that are handed over together. Left open but for n at first. */
struct stepaf_verbs_chain {
    struct stepaf_verbs_link *link;
    struct stepaf_verbs_path *path;
    unsigned n;
    struct ibv_send_wr wr[STEPAF_VERBS_CHAIN];
    struct ibv_sge sge[STEPAF_VERBS_CHAIN];
};

/* Add a write of @a bytes bytes of a tensor, from its byte @a at on. */
void stepaf_verbs_chain_write(struct stepaf_verbs_chain *chain, const struct stepaf_xfer *xfer,
                              uint32_t at, uint32_t bytes);
/* Hand them over; @a tracked: their end is to be heard of. False: the path is lost by that. */
bool stepaf_verbs_chain_submit(struct stepaf_verbs_chain *chain, bool tracked);

/* Send a post that was sent before, from its cursor on. False: there is no room for the rest now, or
 * a path is lost by that. */
bool stepaf_verbs_send_again(struct stepaf_verbs_link *link, struct stepaf_post *post);
/* Send a message of the transport's own by a rail's first path. False: there is no room now. */
bool stepaf_verbs_send_own(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path,
                           const struct stepaf_msg *msg);

#endif
