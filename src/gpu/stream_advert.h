/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other about their stream plans in the exchange of the commit: parse, match,
 * check. Pure: no I/O, and no input is trusted. */
#ifndef STEPAF_GPU_STREAM_ADVERT_H
#define STEPAF_GPU_STREAM_ADVERT_H

#include "gpu/stream.h"

/* A stream plan as a rank advertises it. */
struct stepaf_stream_advert_plan {
    uint32_t number;
    uint32_t depth;
    uint32_t n_push;
    uint32_t n_pull; /* per peer */
    uint32_t n_peers;
    uint64_t push[STEPAF_MAX_TENSORS];
    struct stepaf_unpack pulls;     /* keys, peer by peer */
    struct stepaf_unpack sizes;     /* maximum sizes of what goes out, peer by peer */
    struct stepaf_unpack rooms;     /* space for what comes in, peer by peer */
    uint32_t n_direct;              /* peers that have mailboxes; the others are proxied */
    struct stepaf_unpack mailboxes; /* of direct peers: an index, then mailboxes */
};

struct stepaf_stream_advert {
    uint32_t n_plans;
    struct stepaf_stream_advert_plan *plans;
    uint64_t mailbox_bytes;
    struct stepaf_gpu_export mailboxes;
    uint32_t engine; /* STEPAF_CUDA_ENGINE */
    uint32_t n_host; /* peers that write to host memory */
    struct stepaf_unpack host;
};

/* One mailbox of a plan. */
struct stepaf_stream_advert_mailbox {
    uint64_t offset;
    uint32_t stride;
    uint32_t pitch;
    uint32_t proto;
    struct stepaf_gpu_export place; /* ZCOPY */
};

/* Read the advert of a rank of role @a role. Returns STEPAF_ERR_PROTOCOL if it is malformed.
 * Release with stepaf_stream_advert_free. */
stepaf_status_t stepaf_stream_advert_read(struct stepaf_unpack unpack, int role, int world_rank,
                                          struct stepaf_stream_advert *told_p);
void stepaf_stream_advert_free(struct stepaf_stream_advert *stream_advert);

/* Return pull key @a i for peer @a peer. */
uint64_t stepaf_stream_advert_pull(const struct stepaf_stream_advert_plan *plan, uint32_t peer,
                                   uint32_t i);
/* Return the maximum bytes of tensor @a i that goes out to peer @a peer; @a n_out tensors per
 * peer. */
uint32_t stepaf_stream_advert_size(const struct stepaf_stream_advert_plan *plan, uint32_t n_out,
                                   uint32_t peer, uint32_t i);
/* Return the space for tensor @a i from peer @a peer; @a n_in tensors per peer. */
uint32_t stepaf_stream_advert_room(const struct stepaf_stream_advert_plan *plan, uint32_t n_in,
                                   uint32_t peer, uint32_t i);
/* Find the mailbox of tensor @a i from peer @a peer. Returns false if there is none. */
bool stepaf_stream_advert_mailbox(const struct stepaf_stream_advert_plan *plan, uint32_t n_in,
                                  uint32_t peer, uint32_t i,
                                  struct stepaf_stream_advert_mailbox *mailbox_p);

/* Find the host memory that peer @a peer writes to. Returns false if the peer writes to GPU
 * memory. */
bool stepaf_stream_advert_host(const struct stepaf_stream_advert *stream_advert, uint32_t peer,
                               int *fd_p, uint64_t *bytes_p);

/* Return the plan in @a stream_advert that @a plan of @a own talks to; NULL if there is none. It
 * has the same keys, where the caller is peer @a slot there, and the advertising rank is peer
 * @a peer here. Of several, it is the one at the same place among them, in advertised order. */
const struct stepaf_stream_advert_plan *stepaf_stream_advert_match(
    const struct stepaf_stream_advert *stream_advert, uint32_t slot,
    const struct stepaf_stream_advert *own, const struct stepaf_stream_advert_plan *plan,
    uint32_t peer);

/* Check whether all stream plans of all ranks have their counterparts and, if @a kinds_differ,
 * whether keys in several kinds of memory are supported between them. All ranks come to the same
 * result. */
stepaf_status_t stepaf_stream_adverts_check(const struct stepaf_advert *adverts, int n,
                                            bool kinds_differ);

#endif
