/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in flight at an attention rank. */
#ifndef STEPAF_CORE_OP_H
#define STEPAF_CORE_OP_H

#include <stdatomic.h>

#include <stepaf/stepaf.h>

#include "core/table.h"
#include "transport/post.h"
#include "transport/transport.h"

struct stepaf_ctx;
struct stepaf_peer;
struct stepaf_plan_obj;

enum stepaf_op_peer_state {
    STEPAF_OP_PEER_NONE,     /* skipped by this operation */
    STEPAF_OP_PEER_LEFT_OUT, /* not asked: it has not released the slot, see core/late.h */
    STEPAF_OP_PEER_WAITING,  /* no answer yet */
    STEPAF_OP_PEER_ARRIVING, /* the answer has arrived and is being copied into GPU memory */
    STEPAF_OP_PEER_ANSWERED, /* its tensors have arrived */
    STEPAF_OP_PEER_CANCELED, /* the batch was released without an answer */
    STEPAF_OP_PEER_REFUSED,  /* its sources cannot be read: nothing was sent */
    STEPAF_OP_PEER_LOST
};

/* An operation's part at one peer. */
struct stepaf_op_peer {
    struct stepaf_post post;
    struct stepaf_peer *peer;
    /* Ticks. Valid, like the fields after it, once the part is ANSWERED or CANCELED. LEFT_OUT and
     * held: start time of the operation that the peer is still working on. */
    uint64_t answered;
    uint32_t queue_ns; /* reported by the peer; UINT32_MAX: not reported */
    uint32_t work_ns;
    uint64_t pull_sum; /* bytes of all tensors of the answer, as planned */
    uint64_t stamp;    /* stepaf_trace_word of its answer, without the events stamped with it */
    /* LEFT_OUT and held: sequence of the operation that the peer is still working on */
    uint32_t owed;
    union {
        struct {
            uint8_t state; /* stepaf_op_peer_state */
            /* The answer needs the slow path: pull_bytes are not as planned, or the operation may
             * complete without the answer. */
            bool odd;
        };
        uint16_t state_if_usual; /* differs from any state if odd */
    };
    bool held; /* the peer has not released the slot */
};

/* What has landed at a peer, or from a peer, before its answer. */
struct stepaf_op_landed {
    uint32_t seq;  /* of the operation concerned */
    uint32_t bits; /* bit i: tensor i of the answer has landed; STEPAF_OP_PUSHED: the push has */
};

enum { STEPAF_OP_PUSHED = 1 << STEPAF_MAX_TENSORS };

/* Return whether the answer is outstanding, or being copied into GPU memory. */
static inline bool stepaf_op_peer_is_open(const struct stepaf_op_peer *op_peer)
{
    return op_peer->state == STEPAF_OP_PEER_WAITING || op_peer->state == STEPAF_OP_PEER_ARRIVING;
}

/* Return whether the peer is still working on an earlier operation in this part's slot: see
 * core/late.h. */
static inline bool stepaf_op_peer_owes(const struct stepaf_op_peer *op_peer)
{
    return op_peer->state == STEPAF_OP_PEER_LEFT_OUT && op_peer->held;
}

struct stepaf_op {
    struct stepaf_plan_obj *plan;
    struct stepaf_op *after; /* the op of the next slot */
    uint32_t index;          /* in ctx->tables.ops */
    uint32_t name;           /* the handle's half that holds the index */
    uint32_t generation;     /* the handle's other half */
    uint32_t seq;
    uint32_t bit; /* the slot's bit in masks */
    uint8_t slot;
    bool retired;        /* its result was returned to the caller */
    bool not_as_planned; /* its posts differ from the plan, or are not compiled yet */
    bool bounced;        /* during the start: its sources are being copied */
    _Atomic int status;  /* STEPAF_INPROGRESS until the result is known */
    struct {
        uint32_t
            pending; /* answers that it needs to complete; once complete, those still outstanding */
        bool watched; /* completion is reported to the watch: core/watch.h */
        union {
            struct {
                uint32_t spare;  /* outstanding answers beyond the needed ones */
                uint32_t enough; /* has the needed answers, but waits for the others */
            };
            uint64_t some; /* nonzero: may complete without all answers */
        };
        uint64_t until;                  /* ticks: end of that wait; 0: does not wait */
        struct stepaf_op_landed *landed; /* per peer: what landed before the answer */
    } answers;
    uint32_t n_held;    /* peers that have not released the slot */
    uint32_t n_waiting; /* threads that wait for this operation */
    int failed_peer;
    struct {
        uint64_t started;  /* ticks */
        uint64_t notified; /* ticks: when all parts were posted */
        uint64_t done;     /* ticks: completion of the slot's last operation; only if watched */
        uint64_t waited;   /* stepaf_trace_word of a wait for this operation */
    } trace;
    struct stepaf_op_peer *op_peers; /* per peer */
    struct stepaf_post **posts;      /* posts of the parts, in the same order */
    struct stepaf_xfer *xfers;       /* n_push per peer */
    uint32_t *pull_bytes;            /* n_pull per peer; bytes that landed, initially as planned */
    uint32_t imm;                    /* START in 32 bits; answers differ only in the code */
    /* Prepared by each transport, by index, for its posts as planned, or NULL. */
    void *templates[STEPAF_MAX_TRANSPORTS];
    size_t template_bytes;
    void *copied; /* event: sources are copied to bounce buffers; NULL: not used yet */
};

static inline stepaf_request_h stepaf_op_handle(const struct stepaf_op *op)
{
    return stepaf_handle_of(op->name, op->generation);
}
/* Return the operation that a message names; NULL if it names none of this rank's. */
struct stepaf_op *stepaf_op_find(const struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_op_response(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* Note that a tensor of an answer has landed before the others, or that the push has landed. */
void stepaf_op_landed(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* Return what has landed of peer @a p's part before its answer. */
static inline uint32_t stepaf_op_has_landed(const struct stepaf_op *op, uint32_t p)
{
    return op->answers.landed[p].seq == op->seq ? op->answers.landed[p].bits : 0;
}
/* Note that the data of an ARRIVING answer is in its final memory. */
void stepaf_op_arrived(struct stepaf_op *op, const struct stepaf_peer *peer);
void stepaf_op_release(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_op_peer_lost(struct stepaf_peer *peer);
/* Note that a START was not sent because its sources cannot be read. */
void stepaf_op_refused(struct stepaf_peer *peer, const struct stepaf_post *post);
/* Complete an operation that waits for further answers, if the wait is over. */
void stepaf_op_expire(struct stepaf_op *op);
stepaf_status_t stepaf_op_cancel(struct stepaf_op *op);
/* Upcall of attention ranks: take an answer in 32 bits, as most answers are, or 32 bits that are
 * none. */
void stepaf_op_deliver_imm(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm);
typedef void stepaf_deliver_imm_fn(struct stepaf_upcalls *up, struct stepaf_link *link,
                                   uint32_t imm);
/* Return the function that replaces stepaf_op_deliver_imm while operations are watched or times are
 * measured. FFN ranks, and ranks that log messages, keep their function. */
stepaf_deliver_imm_fn *stepaf_op_deliver_imm_observed(const struct stepaf_ctx *ctx);

#endif
