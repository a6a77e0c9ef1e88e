/* SPDX-License-Identifier: Apache-2.0 */
/* Links: the transport to each peer, the bytes that it has transferred, and a map of all links of
 * the job. */
#ifndef STEPAF_LINK_H
#define STEPAF_LINK_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The link to one peer. Bytes sent are counted by the transport where it writes them. Bytes
 *  received are those that the peer has reported as written here. Only tensor bytes count. */
typedef struct stepaf_link_info {
    size_t size;             /* in: sizeof(stepaf_link_info_t) */
    int world_rank;          /* of the peer */
    int is_lost;             /* 1: it will never answer again */
    char transport[32];      /* as stepaf_transport_name; "-" before a commit */
    char address[48];        /* of this end; "" if the transport has none */
    char refused[192];       /* better transports and why they are not used: "shm: on another node";
                              * "" if there are none. Truncated if longer */
    uint64_t bytes_sent;     /* since the link was made */
    uint64_t messages_sent;  /* notifications, including those of set-up */
    uint64_t bytes_received; /* since the link was made */
    char streams[16];        /* how streams write to the peer: "cuda_ipc", into its GPU memory;
                              * "cuda_host", into host memory that both GPUs reach; "cuda_proxy",
                              * over the link. "" without stream plans */
    int64_t clock_bound_ns;  /* largest difference of the common clocks of the two ranks
                              * (stepaf_clock_ns); -1: not known, as before a commit */
} stepaf_link_info_t;

/** Describe the link to rank @a rank of the other role.
 *  @param info_p  filled; the caller sets its size field. A copy, valid also after finalize.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (no such peer, or @a info_p is NULL, or
 *  its size is too small).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_link_query(stepaf_context_h ctx, int rank,
                                             stepaf_link_info_t *info_p);

/** Return the name of the transport to rank @a rank of the other role, such as "shm"; "-" before a
 *  commit.
 *
 *  A semicolon separates the name from the method by which the transport writes into memory that is
 *  registered rather than allocated by the library ("shm;cma"). NULL for an invalid argument, for a
 *  rank that is not a peer, and if there is no memory. Valid until finalize.
 *
 *  Does not block. */
STEPAF_API const char *stepaf_transport_name(stepaf_context_h ctx, int rank);

/** Verify every link, and draw the map of the job.
 *
 *  Collective over the members, after a commit; one exchange by the bootstrap, or among the members
 *  once these have changed.
 *
 *  Every rank compares the bytes that its operations have passed to each link with those that the
 *  link's transport has written. Links to lost peers, and links with posts that wait for space, are
 *  not compared. The map shows the ranks and their nodes, the transport between each pair, and the
 *  bytes transferred. Ranks that a commit has excluded, and those that have been replaced, are
 *  marked.
 *  @param text_p  NULL, or set to the map as text at world rank 0, or at the first member if rank 0
 *                 is out; also if a link was found to be wrong. The caller frees the text with
 *                 free(). Set to NULL at other ranks. Unchanged after other failures.
 *  @return STEPAF_OK; STEPAF_ERR_TRANSPORT on every rank (a transport has not written what it
 *  reported; stepaf_last_error names rank, peer and both numbers; nothing else changes);
 *  STEPAF_ERR_HANDLE; STEPAF_ERR_STATE (no commit yet, or a failed one); STEPAF_ERR_TIMEOUT,
 *  STEPAF_ERR_CANCELED (stepaf_set_interrupt), STEPAF_ERR_PEER_LOST or STEPAF_ERR_BOOT (no further
 *  commit is possible); STEPAF_ERR_PROTOCOL (a rank sent something malformed);
 *  STEPAF_ERR_NO_MEMORY.
 *
 *  Blocks for at most about @a timeout_us. */
STEPAF_API stepaf_status_t stepaf_map_check(stepaf_context_h ctx, int64_t timeout_us,
                                            char **text_p);

#ifdef __cplusplus
}
#endif
#endif
