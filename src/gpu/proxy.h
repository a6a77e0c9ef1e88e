/* SPDX-License-Identifier: Apache-2.0 */
/* Peers of stream plans that GPU memory does not reach: on other nodes, with plans in host memory,
 * or because it is asked for. Their tensors are relayed by way of the host and its transports.
 *
 * To the kernels a relayed peer is like any other. What goes out is written to *outlets*, and what
 * comes in is waited for in *heads* and copied from *landings*, all in pinned memory of this
 * process. In between is the host engine. At an attention rank a plan of its own, the *twin*, is
 * started when the stream's heads are stamped, and the heads of what comes in are stamped when its
 * answers have landed. At an FFN rank batches of a plan with the same keys are the stream's, and
 * are answered when it has stamped the heads of its answers. So the peer sees the ordinary
 * protocol, and cannot tell a twin from a plan of its caller's.
 *
 * All tensors go the way INLET: a head that the host writes or reads carries nothing but size and
 * stamp, 16 bytes in one cache line, which cannot be torn. */
#ifndef STEPAF_GPU_PROXY_H
#define STEPAF_GPU_PROXY_H

#include "gpu/stream.h"

/* Where a tensor to or from a relayed peer is on its way. */
struct stepaf_relay_lane {
    uint8_t *data;  /* of slot 0; NULL: the peer is not relayed */
    uint8_t *heads; /* one a slot */
    uint32_t pitch; /* from slot to slot of data */
};

enum { STEPAF_RELAY_AHEAD = 128 }; /* operations of a plan on streams, about, at most */

struct stepaf_relay_peer {
    bool relayed;
    uint32_t order;               /* among the relayed */
    uint64_t n_in;                /* operations of which the stream was told that they are here */
    uint64_t n_out;               /* FFN: answers that were handed over, or cannot be */
    struct stepaf_mirror *mirror; /* FFN: whose batches are the stream's; NULL: not told yet */
    uint32_t first;               /* FFN: its sequence, and its slot, of operation 0 */
    uint8_t turn;
};

/* One stream plan's. */
struct stepaf_relay {
    struct stepaf_list node; /* in ctx->relays */
    struct stepaf_stream *stream;
    struct stepaf_plan_obj *twin;    /* attention */
    uint64_t n_started;              /* attention: its operations */
    uint64_t n_marked;               /* operations behind which there was a mark */
    void *marks[STEPAF_RELAY_AHEAD]; /* events; NULL: none was yet */
    bool over;                       /* the stream has failed, and the peers have been let go */
    struct stepaf_relay_peer *peers;
    struct stepaf_relay_lane *in;  /* peer by peer: n_in */
    struct stepaf_relay_lane *out; /* peer by peer: n_out */
    stepaf_tensor_t *push;         /* attention: of the operation that begins, peer by peer */
};

/* FFN: where a push key comes to from relayed peers: a slice for each of them, as of segments. */
struct stepaf_landing {
    struct stepaf_segment segment;
    struct stepaf_key *key;
    struct stepaf_landing *next; /* of the same commit */
};

/* Whether there are, or the commit under way makes, stream plans with relayed peers. */
static inline bool stepaf_has_relays(const struct stepaf_ctx *ctx)
{
    return ctx->streams && ctx->streams->heads;
}
/* Whether peer @a p is relayed; both sides say the same. */
bool stepaf_peer_relayed(const struct stepaf_ctx *ctx, uint32_t p);

/* ---- relay_layout.c: the commit ---- */

/* Make the memory of all relays anew, before the exchange; ctx->streams has it. */
stepaf_status_t stepaf_relays_prepare(struct stepaf_ctx *ctx);
/* The commit was refused: keys land where they did. */
void stepaf_relays_undo(struct stepaf_ctx *ctx);
/* Put the relay that was prepared for a stream in force; what was before ends. Then the stream is
 * compiled, then the twin is made. */
void stepaf_relay_begin(struct stepaf_stream *stream);
/* Where the tensors of a stream go to peer @a p, if it is relayed. */
void stepaf_relay_outlets(const struct stepaf_streams *streams, const struct stepaf_stream *stream,
                          uint32_t p, struct stepaf_outlet *outlets);
void stepaf_relay_free(struct stepaf_relay *relay);
/* Free the memory of one commit, but for what kernels may still look at; then that, too. */
void stepaf_relays_retire(struct stepaf_ctx *ctx, struct stepaf_streams *streams);
void stepaf_relays_free(struct stepaf_ctx *ctx, struct stepaf_streams *streams);

/* ---- relay_twin.c: attention, at the commit ---- */

stepaf_status_t stepaf_relay_make_twin(struct stepaf_stream *stream);
/* The stream's plan ends: give back what peers have sent, and end the twin. STEPAF_ERR_STATE: not
 * yet. */
stepaf_status_t stepaf_relay_end_plan(struct stepaf_stream *stream);
/* Twins that streams had to let go of while they were busy end. */
void stepaf_relays_sweep(struct stepaf_ctx *ctx);

/* ---- relay_ahead.c ---- */

/* Whether one operation more may be enqueued: STEPAF_ERR_WOULD_BLOCK if too many are. */
stepaf_status_t stepaf_relay_admit(const struct stepaf_relay *relay);
/* Mark the end of an operation in its stream, without the lock: then, if @a marked_p, with it, there is
 * one mark more. What is captured has none. */
stepaf_status_t stepaf_relay_mark(struct stepaf_relay *relay, void *cuda_stream, bool *marked_p);
/* Whether the GPU has not come by all that was enqueued. */
bool stepaf_relay_is_ahead(const struct stepaf_relay *relay);
bool stepaf_relays_are_ahead(const struct stepaf_ctx *ctx);
void stepaf_relay_forget(struct stepaf_relay *relay);

/* ---- relay.c: in use; the lock is held ---- */

/* Look at what the streams have stamped, and at what has landed. */
unsigned stepaf_relays_progress(struct stepaf_ctx *ctx);
/* Attention: tell the stream what has landed. */
unsigned stepaf_relay_land(struct stepaf_relay *relay);
/* FFN: a batch of a plan that is a stream's, or strayed, has come. */
void stepaf_relay_arrived(struct stepaf_batch_obj *batch);
/* FFN: a peer's plan is known: it may be a stream's. */
void stepaf_relay_bind(struct stepaf_mirror *mirror);
void stepaf_relay_unbind(struct stepaf_mirror *mirror);
/* FFN: give back all batches that the stream has not answered. */
void stepaf_relay_let_go(struct stepaf_relay *relay);
/* FFN: where @a key comes to from @a peer, if it is relayed; NULL: not to a landing. */
uint8_t *stepaf_relay_landing(const struct stepaf_key *key, const struct stepaf_peer *peer);

#endif
