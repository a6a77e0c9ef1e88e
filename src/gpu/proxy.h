/* SPDX-License-Identifier: Apache-2.0 */
/* Peers of stream plans that GPU memory does not reach: on other nodes, with plans in host memory,
 * or because it is asked for. Their tensors are proxied by way of the host and its transports.
 *
 * To the kernels a proxied peer is like any other. What goes out is written to the *proxy's send
 * buffers*, and what comes in is waited for in *heads* and copied from the *proxy's receive
 * buffers*, all in pinned memory of this process. In between is the core. At an attention rank a
 * plan of its own, the *proxy plan*, is started when the stream's heads are stamped, and the heads
 * of what comes in are stamped when its answers have landed. At an FFN rank batches of a plan with
 * the same keys are the stream's, and are answered when it has stamped the heads of its answers. So
 * the peer sees the ordinary protocol, and cannot tell a proxy plan from a plan of its caller's.
 *
 * Where the link of a peer reads and writes GPU memory itself, there is neither send nor receive
 * buffer: the stream writes a head alone, which says where the source is, and the other end's link
 * writes to the tensor in its place.
 *
 * All other tensors go by BCOPY, or by PARTS where some tensor of the plan is large
 * (proxy_parts.c): a head that the host writes or reads carries nothing but size and stamp, 16
 * bytes in one cache line, which cannot be torn. */
#ifndef STEPAF_GPU_PROXY_H
#define STEPAF_GPU_PROXY_H

#include "core/batch.h"
#include "core/key_recv.h"
#include "gpu/stream.h"

/* Where a tensor to or from a proxied peer is on its way. */
struct stepaf_proxy_buf {
    uint8_t *data;       /* of slot 0; NULL: the peer is not proxied */
    uint8_t *heads;      /* one a slot */
    uint32_t pitch;      /* from slot to slot of data */
    uint32_t head_pitch; /* of heads */
    uint32_t part;       /* bytes of a part, whose flags are behind the head; 0: there are none */
    uint32_t flagged;    /* parts of the next operation whose flags were seen (out), or set (in) */
    uint32_t bytes;      /* in: of the next operation, as the peer has told ahead */
    bool in_place;       /* data is the tensor itself, which links read and write (proxy_way.c) */
};

enum {
    STEPAF_PROXY_POSTS = 4,
    STEPAF_PROXY_MERGED = 4 /* parts of STEPAF_CUDA_AHEAD_BYTES that one carries at most */
};

/* A part of a tensor on its way, ahead of the message that all is there. */
struct stepaf_proxy_post {
    struct stepaf_post post; /* first: if the core is to free it */
    struct stepaf_xfer xfer;
};

enum { STEPAF_PROXY_AHEAD = 128 }; /* operations of a plan on streams, about, at most */

struct stepaf_proxy_peer {
    bool proxied;
    bool on_streams;  /* it has a stream plan, too */
    bool asks;        /* attention: of the operation that begins: guarded */
    uint8_t *sent;    /* heads, one a slot: sources have been read; NULL: none is read in place */
    uint32_t guarded; /* bit s: the stream waits until those of slot s have been */
    bool told;       /* in: of the next operation the sizes are told ahead, and the heads stamped */
    uint32_t *ahead; /* n_out: bytes of the next operation that have gone ahead; NULL: never any */
    struct stepaf_proxy_post *posts[STEPAF_PROXY_POSTS]; /* which carry them */
    uint32_t n_posted;
    uint64_t n_in;  /* operations of which the stream was told that they are here */
    uint64_t n_out; /* FFN: answers that were handed over, or cannot be */
    struct stepaf_remote_plan *remote; /* FFN: whose batches are the stream's; NULL: not told yet */
    uint32_t first;                    /* FFN: its sequence, and its slot, of operation 0 */
    uint8_t turn;
};

/* One stream plan's. */
struct stepaf_proxy {
    struct stepaf_list node; /* in ctx->gpu.proxies */
    struct stepaf_stream *stream;
    struct stepaf_plan_obj *proxy_plan; /* attention */
    uint64_t n_started;                 /* attention: its operations */
    uint64_t n_marked;                  /* operations behind which there was a mark */
    void *marks[STEPAF_PROXY_AHEAD];    /* events; NULL: none was yet */
    bool over;                          /* the stream has failed, and the peers have been let go */
    struct stepaf_proxy_peer *peers;
    uint32_t n_peers;
    struct stepaf_proxy_buf *in;  /* peer by peer: n_in */
    struct stepaf_proxy_buf *out; /* peer by peer: n_out */
    stepaf_tensor_t *push;        /* attention: of the operation that begins, peer by peer */
    bool as_planned;              /* attention: which is as the proxy plan has it */
    uint32_t *ahead;              /* of all peers: n_out */
};

/* FFN: where a push key comes to from proxied peers: a slice for each of them, as in other receive
 * buffers. */
struct stepaf_proxy_recv {
    struct stepaf_recv_buf recv_buf;
    struct stepaf_key *key;
    struct stepaf_proxy_recv *next; /* of the same commit */
};

/* Whether peer @a p is proxied; both sides say the same. */
bool stepaf_peer_proxied(const struct stepaf_ctx *ctx, uint32_t p);

/* ---- proxy_way.c: the commit ---- */

/* Make GPU memory ready for links that read and write it themselves, before anything is laid
 * out. */
stepaf_status_t stepaf_proxies_link(struct stepaf_ctx *ctx);
/* Whether what is in @a region goes to peer @a p, or comes from there, without a copy. */
bool stepaf_proxy_is_in_place(const struct stepaf_ctx *ctx, uint32_t p,
                              const struct stepaf_region *region);
/* FFN: whether peer @a p writes a push key to its own receive buffer. */
bool stepaf_proxy_receives_in_place(const struct stepaf_ctx *ctx, uint32_t p,
                                    const struct stepaf_key *key);

/* For the map: how what streams exchange with a peer goes. False: there is nothing. */
bool stepaf_proxy_describe(const struct stepaf_peer *peer, char *text);

/* ---- proxy_lay.c: the commit; places are offsets until memory is there ---- */

/* Bytes of each kind of memory. */
struct stepaf_proxy_room {
    uint64_t proxy_recvs, proxy_sends, heads;
    bool copied_in, copied_out; /* some tensor comes, or goes, by way of such memory */
};

uint64_t stepaf_proxy_take_room(uint64_t *room, uint64_t bytes);
/* Where tensors from and to peer @a p are on their way. */
void stepaf_proxy_lay(struct stepaf_proxy *proxy, uint32_t p, struct stepaf_proxy_room *room);
/* Turn offsets into places. */
void stepaf_proxy_place(struct stepaf_proxy *proxy, const struct stepaf_streams *streams);
/* Where the tensors of a stream go to peer @a p, if it is proxied. */
void stepaf_proxy_dsts(const struct stepaf_streams *streams, const struct stepaf_stream *stream,
                       uint32_t p, struct stepaf_stream_dst *dsts);

/* ---- proxy_buffers.c: the commit ---- */

/* Make the memory of all proxies anew, before the exchange; ctx->gpu.streams has it. */
stepaf_status_t stepaf_proxies_prepare(struct stepaf_ctx *ctx);
/* The commit was refused: keys land where they did. */
void stepaf_proxies_undo(struct stepaf_ctx *ctx);
/* Put the proxy that was prepared for a stream in force; what was before ends. Then the stream is
 * compiled, then the proxy plan is made. */
void stepaf_proxy_begin(struct stepaf_stream *stream);
void stepaf_proxy_free(struct stepaf_proxy *proxy);
/* Free the memory of one commit, but for what kernels may still look at; then that, too. */
void stepaf_proxies_retire(struct stepaf_ctx *ctx, struct stepaf_streams *streams);
void stepaf_proxies_free(struct stepaf_ctx *ctx, struct stepaf_streams *streams);

/* ---- proxy_plan.c: attention, at the commit ---- */

stepaf_status_t stepaf_proxy_make_plan(struct stepaf_stream *stream);
/* The stream's plan ends: give back what peers have sent, and end the proxy plan. STEPAF_ERR_STATE:
 * not yet. */
stepaf_status_t stepaf_proxy_end_plan(struct stepaf_stream *stream);
/* Proxy plans that streams had to let go of while they were busy end. */
void stepaf_proxies_free_plans(struct stepaf_ctx *ctx);

/* The feature's carrier. */
bool stepaf_proxy_carrier(const struct stepaf_op *op, uint32_t p,
                          const struct stepaf_op **carrier_p);

/* ---- proxy_ahead.c ---- */

/* Whether one operation more may be enqueued: STEPAF_ERR_WOULD_BLOCK if too many are. */
stepaf_status_t stepaf_proxy_check_room(const struct stepaf_proxy *proxy);
/* Mark the end of an operation in its stream, without the lock: then, if @a marked_p, with it,
 * there is one mark more. What is captured has none. */
stepaf_status_t stepaf_proxy_mark(struct stepaf_proxy *proxy, void *cuda_stream, bool *marked_p);
/* Whether the GPU has not come by all that was enqueued. */
bool stepaf_proxy_is_ahead(const struct stepaf_proxy *proxy);
bool stepaf_proxies_are_ahead(const struct stepaf_ctx *ctx);
void stepaf_proxy_free_events(struct stepaf_proxy *proxy);

/* ---- proxy_heads.c: what streams and host tell each other ---- */

/* What operation @a n of a stream, from 0, is stamped with. */
uint64_t stepaf_proxy_stamp(const struct stepaf_stream *stream, uint64_t n);
/* Tell the stream that a tensor is here, or of PARTS that it comes: all of it that is here can be
 * seen before. */
void stepaf_proxy_stamp_head(const struct stepaf_proxy_buf *buf, uint32_t slot, uint32_t bytes,
                             uint64_t stamp);
/* Whether the stream has told of all tensors of operation @a n to a peer, and which. */
bool stepaf_proxy_take_told(const struct stepaf_proxy *proxy, uint32_t p, uint64_t n,
                            stepaf_tensor_t *tensors, bool *guarded_p);
/* They are taken: marks that count nothing are to go. */
void stepaf_proxy_clear_marks(const struct stepaf_proxy *proxy, uint32_t p, uint64_t n);

/* ---- proxy_parts.c: large tensors, part by part ---- */

/* What tensor @a i to (@a out), or from, peer @a p is at most; whether tensors go so, if not in
 * place. */
uint32_t stepaf_proxy_most(const struct stepaf_stream *stream, uint32_t p, uint32_t i, bool out);
bool stepaf_proxy_has_parts(const struct stepaf_stream *stream, uint32_t p, bool out);
/* How much goes next, where @a ready bytes of the @a left that have not gone are there: @a each at
 * least, or all but its last part would wait. Larger ones cost less; each is half of what is left
 * at most, so that the copy at the other end is no longer than what is still to come. */
static inline uint32_t stepaf_proxy_next_part(uint32_t ready, uint32_t left, uint32_t each)
{
    uint64_t bytes = left / 2, most = (uint64_t)STEPAF_PROXY_MERGED * each;

    bytes = bytes < most ? bytes : most;
    bytes = bytes < ready ? bytes : ready;
    return bytes < each ? each : (uint32_t)(bytes - bytes % each);
}

/* Send what the stream has written of the next operation to peer @a p, of which it has told.
 * *all_p: all is there, and what is left of it may go with its message. Returns how many parts have
 * left. */
unsigned stepaf_proxy_send_ahead(struct stepaf_proxy *proxy, uint32_t p,
                                 const stepaf_tensor_t *tensors, bool *all_p);
/* It is gone. */
void stepaf_proxy_forget_ahead(struct stepaf_proxy *proxy, uint32_t p);
/* Say of the parts of the next operation up to @a end, but not that, that they are here. */
void stepaf_proxy_flag_parts(struct stepaf_proxy_buf *buf, uint32_t slot, uint32_t end,
                             uint64_t stamp);
/* All tensors of the next operation from peer @a p are here: tell the stream. False: they are not
 * those that were told of ahead. */
bool stepaf_proxy_take_in(struct stepaf_proxy *proxy, uint32_t p, const uint32_t *bytes);
/* For the peers of a proxy that is laid out; and the end. */
stepaf_status_t stepaf_proxy_make_posts(struct stepaf_proxy *proxy);
void stepaf_proxy_free_posts(struct stepaf_proxy *proxy);

/* ---- proxy_bind.c: FFN: whose batches are a stream's; the lock is held ---- */

/* A peer's plan is known: it may be a stream's. */
void stepaf_proxy_bind(struct stepaf_remote_plan *remote);
void stepaf_proxy_unbind(struct stepaf_remote_plan *remote);
/* Where a stream plan receives @a key from @a peer, if it is proxied; NULL: it does not. */
uint8_t *stepaf_proxy_recv_place(const struct stepaf_key *key, const struct stepaf_peer *peer);

/* ---- proxy.c: in use; the lock is held ---- */

/* Look at what the streams have stamped, and at what has landed. */
unsigned stepaf_proxies_progress(struct stepaf_ctx *ctx);
/* Attention: tell the stream what has landed. */
unsigned stepaf_proxy_land(struct stepaf_proxy *proxy);
/* FFN: a batch of a plan that is a stream's, or unbound, has come. */
void stepaf_proxy_arrived(struct stepaf_batch_obj *batch);
/* FFN: give back all batches that the stream has not answered. */
void stepaf_proxy_finish_batches(struct stepaf_proxy *proxy);

/* ---- proxy_landed.c ---- */

/* A part has landed: the feature's landed. */
void stepaf_proxy_landed(struct stepaf_peer *peer, const struct stepaf_msg *msg);

#endif
