/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other of their stream plans in the commit's exchange. Pure: no I/O, and
 * nothing is trusted. */
#ifndef STEPAF_GPU_STREAM_ADVERT_H
#define STEPAF_GPU_STREAM_ADVERT_H

#include "gpu/stream.h"

/* A stream plan as a rank tells it. */
struct stepaf_stream_advert_plan {
    uint32_t number;
    uint32_t depth;
    uint32_t n_push;
    uint32_t n_pull; /* for each peer */
    uint32_t n_peers;
    uint64_t push[STEPAF_MAX_TENSORS];
    struct stepaf_unpack pulls;     /* keys, peer by peer */
    struct stepaf_unpack sizes;     /* of what goes out, at most, peer by peer */
    struct stepaf_unpack rooms;     /* for what comes in, peer by peer */
    uint32_t n_direct;              /* peers that have mailboxes: others are proxied */
    struct stepaf_unpack mailboxes; /* of these: an index, then mailboxes */
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

/* One mailbox of it. */
struct stepaf_stream_advert_mailbox {
    uint64_t offset;
    uint32_t stride;
    uint32_t pitch;
    uint32_t proto;
    struct stepaf_gpu_export place; /* ZCOPY */
};

/* Read what a rank of role @a role tells; STEPAF_ERR_PROTOCOL if it is malformed. Ended by free. */
stepaf_status_t stepaf_stream_advert_read(struct stepaf_unpack unpack, int role, int world_rank,
                                          struct stepaf_stream_advert *told_p);
void stepaf_stream_advert_free(struct stepaf_stream_advert *stream_advert);

/* Pull key @a i for peer @a peer. */
uint64_t stepaf_stream_advert_pull(const struct stepaf_stream_advert_plan *plan, uint32_t peer,
                                   uint32_t i);
/* Bytes of tensor @a i that goes out to peer @a peer, at most; @a n_out of them for each. */
uint32_t stepaf_stream_advert_size(const struct stepaf_stream_advert_plan *plan, uint32_t n_out,
                                   uint32_t peer, uint32_t i);
/* What its tensor @a i from peer @a peer has room for; @a n_in of them for each. */
uint32_t stepaf_stream_advert_room(const struct stepaf_stream_advert_plan *plan, uint32_t n_in,
                                   uint32_t peer, uint32_t i);
/* Its mailbox. False: there is none. */
bool stepaf_stream_advert_mailbox(const struct stepaf_stream_advert_plan *plan, uint32_t n_in,
                                  uint32_t peer, uint32_t i,
                                  struct stepaf_stream_advert_mailbox *mailbox_p);

/* The host memory that its peer @a peer writes to. False: it is GPU memory. */
bool stepaf_stream_advert_host(const struct stepaf_stream_advert *stream_advert, uint32_t peer,
                               int *fd_p, uint64_t *bytes_p);

/* The plan of @a told that @a plan of @a own talks to: the same keys, where the one who asks is
 * peer
 * @a slot there, and the one who tells is peer @a peer here; of several the one that is in the same
 * place among them, as told. NULL: there is none. */
const struct stepaf_stream_advert_plan *stepaf_stream_advert_match(
    const struct stepaf_stream_advert *stream_advert, uint32_t slot,
    const struct stepaf_stream_advert *own, const struct stepaf_stream_advert_plan *plan,
    uint32_t peer);

/* Whether all stream plans of all ranks have their counterparts, and, if @a kinds_differ, keys that
 * are of several kinds of memory are carried between them: the same outcome everywhere. */
stepaf_status_t stepaf_stream_adverts_check(const struct stepaf_advert *adverts, int n,
                                            bool kinds_differ);

#endif
