/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy: peers of stream plans that GPU memory does not reach. Such a peer is on another node,
 * has its plan in host memory, or is proxied by a setting. Its tensors travel through the host and
 * its transports.
 *
 * To the kernels a proxied peer is like any other. They write tensors that go out to the *proxy's
 * send buffers*, wait for tensors that come in on *heads*, and copy these from the *proxy's receive
 * buffers*. All of this is pinned memory of this process; the core does the rest. At an attention
 * rank, the core starts a plan of its own, the *proxy plan*, when the stream has stamped its heads.
 * It stamps the heads of incoming tensors when the answers have landed. At an FFN rank, batches of
 * a plan with the same keys belong to the stream, and are answered when the stream has stamped the
 * heads of its answers. So the peer sees the ordinary protocol and cannot tell a proxy plan from a
 * plan of the caller.
 *
 * Where the link of a peer reads and writes GPU memory itself, there is no send buffer and no
 * receive buffer. The stream writes only a head, which names the source, and the link of the other
 * end writes to the tensor in its place.
 *
 * All other tensors go by BCOPY, or by PARTS if some tensor of the plan is large (proxy_parts.c). A
 * head that the host writes or reads holds only size and stamp: 16 bytes in one cache line, which
 * cannot be torn. */
#ifndef STEPAF_GPU_PROXY_H
#define STEPAF_GPU_PROXY_H

#include "core/batch.h"
#include "core/key_recv.h"
#include "gpu/stream.h"

/* Buffers and progress of a tensor to or from a proxied peer. */
struct stepaf_proxy_buf {
    uint8_t *data;       /* slot 0; NULL: the peer is not proxied */
    uint8_t *heads;      /* one per slot */
    uint32_t pitch;      /* from slot to slot of data */
    uint32_t head_pitch; /* from slot to slot of heads */
    uint32_t part;       /* bytes of a part, with flags behind the head; 0: no parts */
    uint32_t flagged;    /* parts of the next operation whose flags were seen (out) or set (in) */
    uint32_t bytes;      /* in: size in the next operation, as the peer announced ahead */
    bool in_place;       /* data is the tensor itself; links read and write it (proxy_way.c) */
};

enum {
    STEPAF_PROXY_POSTS = 4,
    STEPAF_PROXY_MERGED = 4 /* maximum parts of STEPAF_CUDA_AHEAD_BYTES in one post */
};

/* A part of a tensor in flight, ahead of the message that the tensor is complete. */
struct stepaf_proxy_post {
    struct stepaf_post post; /* first member: the core may free it */
    struct stepaf_xfer xfer;
};

enum { STEPAF_PROXY_AHEAD = 128 }; /* approximate maximum of a plan's operations on streams */

struct stepaf_proxy_peer {
    bool proxied;
    bool on_streams;  /* has a stream plan, too */
    bool asks;        /* attention: the operation that begins is guarded */
    uint8_t *sent;    /* heads, one per slot: sources have been read; NULL: none is read in place */
    uint32_t guarded; /* bit s: the stream waits until the sources of slot s have been read */
    bool told;        /* in: sizes of the next operation were announced, and its heads stamped */
    uint32_t *ahead;  /* n_out: bytes of the next operation that went ahead; NULL: never any */
    struct stepaf_proxy_post *posts[STEPAF_PROXY_POSTS]; /* posts that send these bytes */
    uint32_t n_posted;
    uint64_t n_in;                     /* operations whose arrival the stream was told of */
    uint64_t n_out;                    /* FFN: answers that were handed over, or cannot be */
    struct stepaf_remote_plan *remote; /* FFN: its batches are the stream's; NULL: not known yet */
    uint32_t first; /* FFN: sequence number, and slot, of operation 0 at the peer */
    uint8_t turn;
};

/* The proxy of one stream plan. */
struct stepaf_proxy {
    struct stepaf_list node; /* in ctx->gpu.proxies */
    struct stepaf_stream *stream;
    struct stepaf_plan_obj *proxy_plan; /* attention */
    uint64_t n_started;              /* attention: operations of the proxy plan that were started */
    uint64_t n_marked;               /* operations that had a mark behind them */
    void *marks[STEPAF_PROXY_AHEAD]; /* events; NULL: not used yet */
    bool over;                       /* the stream has failed, and its peers are released */
    struct stepaf_proxy_peer *peers;
    uint32_t n_peers;
    struct stepaf_proxy_buf *in;  /* peer by peer, n_in each */
    struct stepaf_proxy_buf *out; /* peer by peer, n_out each */
    stepaf_tensor_t *push; /* attention: tensors of the operation that begins, peer by peer */
    bool as_planned;       /* attention: push is as the proxy plan has it */
    uint32_t *ahead;       /* n_out for each of all peers */
};

/* FFN: where a push key arrives from proxied peers: a slice for each, as in other receive
 * buffers. */
struct stepaf_proxy_recv {
    struct stepaf_recv_buf recv_buf;
    struct stepaf_key *key;
    struct stepaf_proxy_recv *next; /* of the same commit */
};

/* Return whether peer @a p is proxied. Both sides come to the same result. */
bool stepaf_peer_proxied(const struct stepaf_ctx *ctx, uint32_t p);

/* ---- proxy_way.c: the commit ---- */

/* Make GPU memory ready for links that read and write it themselves. Called before the layout. */
stepaf_status_t stepaf_proxies_link(struct stepaf_ctx *ctx);
/* Return whether tensors in @a region travel to and from peer @a p without a copy. */
bool stepaf_proxy_is_in_place(const struct stepaf_ctx *ctx, uint32_t p,
                              const struct stepaf_region *region);
/* FFN: return whether peer @a p writes a push key to the key's own receive buffer. */
bool stepaf_proxy_receives_in_place(const struct stepaf_ctx *ctx, uint32_t p,
                                    const struct stepaf_key *key);

/* Describe for the map how streams exchange tensors with a peer. Returns false if there are
 * none. */
bool stepaf_proxy_describe(const struct stepaf_peer *peer, char *text);

/* ---- proxy_lay.c: the commit; addresses are offsets until the memory exists ---- */

/* Bytes of each kind of memory. */
struct stepaf_proxy_room {
    uint64_t proxy_recvs, proxy_sends, heads;
    bool copied_in, copied_out; /* some tensor comes in, or goes out, through such memory */
};

uint64_t stepaf_proxy_take_room(uint64_t *room, uint64_t bytes);
/* Lay out the buffers of the tensors from and to peer @a p. */
void stepaf_proxy_lay(struct stepaf_proxy *proxy, uint32_t p, struct stepaf_proxy_room *room);
/* Turn offsets into addresses. */
void stepaf_proxy_place(struct stepaf_proxy *proxy, const struct stepaf_streams *streams);
/* Set the destinations of a stream's tensors for peer @a p, if the peer is proxied. */
void stepaf_proxy_dsts(const struct stepaf_streams *streams, const struct stepaf_stream *stream,
                       uint32_t p, struct stepaf_stream_dst *dsts);

/* ---- proxy_buffers.c: the commit ---- */

/* Make the memory of all proxies for this commit, before the exchange; ctx->gpu.streams owns it. */
stepaf_status_t stepaf_proxies_prepare(struct stepaf_ctx *ctx);
/* The commit was refused: let keys be received where they were before. */
void stepaf_proxies_undo(struct stepaf_ctx *ctx);
/* Put the proxy that was prepared for a stream in force, and end the former one. The stream is
 * compiled after that; then the proxy plan is made. */
void stepaf_proxy_begin(struct stepaf_stream *stream);
void stepaf_proxy_free(struct stepaf_proxy *proxy);
/* retire: Free the memory of one commit, except what kernels may still look at. free: Free that,
 * too. */
void stepaf_proxies_retire(struct stepaf_ctx *ctx, struct stepaf_streams *streams);
void stepaf_proxies_free(struct stepaf_ctx *ctx, struct stepaf_streams *streams);

/* ---- proxy_plan.c: attention, at the commit ---- */

stepaf_status_t stepaf_proxy_make_plan(struct stepaf_stream *stream);
/* The stream's plan ends: give back what peers have sent, and end the proxy plan. Returns
 * STEPAF_ERR_STATE if it cannot end yet. */
stepaf_status_t stepaf_proxy_end_plan(struct stepaf_stream *stream);
/* End the proxy plans that streams released while these were busy. */
void stepaf_proxies_free_plans(struct stepaf_ctx *ctx);

/* The `carrier` function of the feature. */
bool stepaf_proxy_carrier(const struct stepaf_op *op, uint32_t p,
                          const struct stepaf_op **carrier_p);

/* ---- proxy_ahead.c ---- */

/* Return STEPAF_ERR_WOULD_BLOCK if too many operations are enqueued for one more. */
stepaf_status_t stepaf_proxy_check_room(const struct stepaf_proxy *proxy);
/* Mark the end of an operation in its stream; called without the lock. If @a marked_p is set, the
 * caller then counts one mark more, with the lock. Captured operations have no mark. */
stepaf_status_t stepaf_proxy_mark(struct stepaf_proxy *proxy, void *cuda_stream, bool *marked_p);
/* Return whether some enqueued operations have not passed on the GPU yet. */
bool stepaf_proxy_is_ahead(const struct stepaf_proxy *proxy);
bool stepaf_proxies_are_ahead(const struct stepaf_ctx *ctx);
void stepaf_proxy_free_events(struct stepaf_proxy *proxy);

/* ---- proxy_heads.c: what streams and host tell each other ---- */

/* Return the stamp of operation @a n of a stream, counted from 0. */
uint64_t stepaf_proxy_stamp(const struct stepaf_stream *stream, uint64_t n);
/* Tell the stream that a tensor has arrived, or with PARTS that it is coming. All of the tensor
 * that has arrived is visible before the head. */
void stepaf_proxy_stamp_head(const struct stepaf_proxy_buf *buf, uint32_t slot, uint32_t bytes,
                             uint64_t stamp);
/* Return whether the stream has announced all tensors of operation @a n to a peer, and which they
 * are. */
bool stepaf_proxy_take_told(const struct stepaf_proxy *proxy, uint32_t p, uint64_t n,
                            stepaf_tensor_t *tensors, bool *guarded_p);
/* The tensors were taken: clear marks that count nothing. */
void stepaf_proxy_clear_marks(const struct stepaf_proxy *proxy, uint32_t p, uint64_t n);

/* ---- proxy_parts.c: large tensors, part by part ---- */

/* most: Return the maximum size of tensor @a i to (@a out) or from peer @a p. has_parts: Return
 * whether the tensors that are not in place go by PARTS. */
uint32_t stepaf_proxy_most(const struct stepaf_stream *stream, uint32_t p, uint32_t i, bool out);
bool stepaf_proxy_has_parts(const struct stepaf_stream *stream, uint32_t p, bool out);
/* Return how much to send next, where @a ready of the @a left unsent bytes are there. It is @a each
 * at least; with less, all but the last part would wait. Larger posts cost less. Each is at most
 * half of what is left, so that the copy at the other end takes no longer than what is still to
 * come. */
static inline uint32_t stepaf_proxy_next_part(uint32_t ready, uint32_t left, uint32_t each)
{
    uint64_t bytes = left / 2, most = (uint64_t)STEPAF_PROXY_MERGED * each;

    bytes = bytes < most ? bytes : most;
    bytes = bytes < ready ? bytes : ready;
    return bytes < each ? each : (uint32_t)(bytes - bytes % each);
}

/* Send what the stream has written of the next operation, which it has announced, to peer @a p.
 * *all_p: all is there, and the rest may go with its message. Returns how many parts have left. */
unsigned stepaf_proxy_send_ahead(struct stepaf_proxy *proxy, uint32_t p,
                                 const stepaf_tensor_t *tensors, bool *all_p);
/* The operation has left: forget how much of it went ahead. */
void stepaf_proxy_forget_ahead(struct stepaf_proxy *proxy, uint32_t p);
/* Tell the stream that the parts of the next operation before @a end have arrived. */
void stepaf_proxy_flag_parts(struct stepaf_proxy_buf *buf, uint32_t slot, uint32_t end,
                             uint64_t stamp);
/* Tell the stream that all tensors of the next operation from peer @a p have arrived. Returns false
 * if their sizes are not those announced ahead. */
bool stepaf_proxy_take_in(struct stepaf_proxy *proxy, uint32_t p, const uint32_t *bytes);
/* Make, and free, the posts for the peers of a proxy that is laid out. */
stepaf_status_t stepaf_proxy_make_posts(struct stepaf_proxy *proxy);
void stepaf_proxy_free_posts(struct stepaf_proxy *proxy);

/* ---- proxy_bind.c: FFN: whose batches are a stream's; the lock is held ---- */

/* A peer's plan is known: bind it to a stream if it has the keys of a stream plan. */
void stepaf_proxy_bind(struct stepaf_remote_plan *remote);
void stepaf_proxy_unbind(struct stepaf_remote_plan *remote);
/* Return where a stream plan receives @a key from @a peer; NULL if the peer is not proxied. */
uint8_t *stepaf_proxy_recv_place(const struct stepaf_key *key, const struct stepaf_peer *peer);

/* ---- proxy.c: in use; the lock is held ---- */

/* Poll what the streams have stamped, and what has landed. */
unsigned stepaf_proxies_progress(struct stepaf_ctx *ctx);
/* Attention: tell the stream what has landed. */
unsigned stepaf_proxy_land(struct stepaf_proxy *proxy);
/* FFN: a batch has arrived, of a plan that is a stream's or is not bound any more. */
void stepaf_proxy_arrived(struct stepaf_batch_obj *batch);
/* FFN: give back all batches that the stream has not answered. */
void stepaf_proxy_finish_batches(struct stepaf_proxy *proxy);

/* ---- proxy_landed.c ---- */

/* A part has landed. The `landed` function of the feature. */
void stepaf_proxy_landed(struct stepaf_peer *peer, const struct stepaf_msg *msg);

#endif
