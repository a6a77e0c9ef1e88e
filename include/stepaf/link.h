/* SPDX-License-Identifier: Apache-2.0 */
/* Links: how each rank of the other role is reached, what has gone over it, and the map of all. */
#ifndef STEPAF_LINK_H
#define STEPAF_LINK_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What is known of the link to one rank of the other role. Bytes and messages sent are counted by
 *  the transport where it writes; bytes received are what the peer has said that it has landed
 *  here. Only tensors count as bytes. */
typedef struct stepaf_link_info {
    size_t size;             /* in: sizeof(stepaf_link_info_t) */
    int world_rank;          /* of the peer */
    int is_lost;             /* 1: it will never answer again */
    char transport[32];      /* as stepaf_transport_name; "-" before commit */
    char address[48];        /* of this side's end, where the transport has such a thing; "" */
    char refused[192];       /* better transports than this one, and why not: "shm: on another
                              * node"; "" if there is none. Cut where it is longer */
    uint64_t bytes_sent;     /* since the link was made */
    uint64_t messages_sent;  /* notifications, those of set-up among them */
    uint64_t bytes_received; /* since the link was made */
} stepaf_link_info_t;

/** Say how rank @a rank of the other role is reached, and what has gone over the link.
 *  @param info_p  filled on success; a copy, nothing in it ends with the context.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (no such peer, or info_p is NULL).
 *  Any thread that may call the library. Never blocks. */
STEPAF_API stepaf_status_t stepaf_link_query(stepaf_context_h ctx, int rank,
                                             stepaf_link_info_t *info_p);

/** Return the name of the transport that reaches rank @a rank of the other role ("shm"), with the
 *  way it writes into registered (not stepaf_alloc-ed) memory after a semicolon ("shm;cma"); "-"
 *  before commit; NULL for an invalid argument and for a rank that this one
 *  does not talk to. Valid until finalize. Never blocks. */
STEPAF_API const char *stepaf_transport_name(stepaf_context_h ctx, int rank);

/** Compare on every rank what its operations have handed to each link with what the link's
 *  transport has written, and draw the map of the job: the ranks with their nodes, and how each
 *  reaches each, with the bytes that went over it. Links to lost peers, and those with posts that
 *  still wait for room, are not judged.
 *
 *  Collective over the world, after a commit; one exchange by the bootstrap.
 *  @param timeout_us  as everywhere.
 *  @param text_p      at world rank 0 the map, for people, to be freed with free(), also when a
 *                     link has been found out; NULL elsewhere, and unchanged after other failures.
 *                     NULL: not wanted.
 *  @return STEPAF_OK; STEPAF_ERR_TRANSPORT on every rank (a link's transport has not written what
 *  it said; the sentence of stepaf_last_error names rank, peer and both numbers; nothing else
 *  changes); STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (no commit yet, or a failed one);
 *  STEPAF_ERR_TIMEOUT, STEPAF_ERR_PEER_LOST or STEPAF_ERR_BOOT (no commit is possible afterwards);
 *  STEPAF_ERR_PROTOCOL (a rank said something malformed); STEPAF_ERR_NO_MEMORY. Blocks for at most
 *  about @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_map_check(stepaf_context_h ctx, int64_t timeout_us,
                                            char **text_p);

#ifdef __cplusplus
}
#endif
#endif
