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
    STEPAF_OP_PEER_ARRIVING, /* the answer is here, and being copied to GPU memory */
    STEPAF_OP_PEER_ANSWERED, /* its tensors are here */
    STEPAF_OP_PEER_CANCELED, /* the batch was released without an answer */
    STEPAF_OP_PEER_REFUSED,  /* its sources cannot be read: nothing was sent */
    STEPAF_OP_PEER_LOST
};

/* An operation's part at one peer. */
struct stepaf_op_peer {
    struct stepaf_post post;
    struct stepaf_peer *peer;
    /* Ticks. This and the following fields are valid once it is ANSWERED or CANCELED. LEFT_OUT and
     * held: when the operation that the peer is still about was started. */
    uint64_t answered;
    uint32_t queue_ns; /* what the peer reported; UINT32_MAX: nothing */
    uint32_t work_ns;
    uint64_t pull_sum; /* bytes of all answers, as planned */
    uint64_t stamp;    /* stepaf_trace_word of its answer, without what is stamped with it */
    uint32_t owed;     /* LEFT_OUT and held: the operation that the peer is still about */
    union {
        struct {
            uint8_t state; /* stepaf_op_peer_state */
            /* Its answer is unusual: pull_bytes are not as planned, or the operation may complete
             * without it. */
            bool odd;
        };
        uint16_t state_if_usual; /* another number if it is odd */
    };
    bool held; /* the peer has not released the slot */
};

/* What has landed at a peer, or from a peer, before its answer. */
struct stepaf_op_landed {
    uint32_t seq;  /* of the operation that it is about */
    uint32_t bits; /* bit i: tensor i of the answer is here; STEPAF_OP_PUSHED: the push is there */
};

enum { STEPAF_OP_PUSHED = 1 << STEPAF_MAX_TENSORS };

/* Whether its answer is still to come, or being copied to GPU memory. */
static inline bool stepaf_op_peer_is_open(const struct stepaf_op_peer *op_peer)
{
    return op_peer->state == STEPAF_OP_PEER_WAITING || op_peer->state == STEPAF_OP_PEER_ARRIVING;
}

/* Whether the peer is still about an earlier operation in this part's slot: see core/late.h. */
static inline bool stepaf_op_peer_owes(const struct stepaf_op_peer *op_peer)
{
    return op_peer->state == STEPAF_OP_PEER_LEFT_OUT && op_peer->held;
}

struct stepaf_op {
    struct stepaf_plan_obj *plan;
    struct stepaf_op *after; /* of the next slot */
    uint32_t index;          /* in ctx->tables.ops */
    uint32_t name;           /* half of the handle, which has the index */
    uint32_t generation;     /* the other half */
    uint32_t seq;
    uint32_t bit; /* of its slot in masks */
    uint8_t slot;
    bool retired;        /* its result was handed out */
    bool not_as_planned; /* its posts are not as planned, or not compiled yet */
    bool bounced;        /* being started: its sources are being copied */
    _Atomic int status;  /* STEPAF_INPROGRESS until known */
    struct {
        uint32_t
            pending; /* that it is not complete without; once it is complete, all that are to come */
        bool watched; /* the watch is told of its completion: core/watch.h */
        union {
            struct {
                uint32_t spare;  /* further answers that are still to come */
                uint32_t enough; /* it could be complete, but waits for the others */
            };
            uint64_t some; /* it may be complete without others */
        };
        uint64_t until;                  /* ticks: until when it waits; 0: it does not */
        struct stepaf_op_landed *landed; /* per peer: before the answers */
    } answers;
    uint32_t n_held;    /* peers that have not released the slot */
    uint32_t n_waiting; /* threads that wait for it */
    int failed_peer;
    struct {
        uint64_t started;  /* ticks */
        uint64_t notified; /* ticks: when all parts had been posted */
        uint64_t done;     /* ticks: when the slot's last operation was complete; only if watched */
        uint64_t waited;   /* stepaf_trace_word of a wait for it */
    } trace;
    struct stepaf_op_peer *op_peers; /* per peer */
    struct stepaf_post **posts;      /* the parts', in the same order */
    struct stepaf_xfer *xfers;       /* per peer: n_push */
    uint32_t *pull_bytes;            /* per peer: n_pull; what landed, as planned at first */
    uint32_t imm;                    /* START in 32 bits; answers differ from it only in the code */
    /* What each transport, by index, has built for its posts as planned, or NULL. */
    void *templates[STEPAF_MAX_TRANSPORTS];
    size_t template_bytes;
    void *copied; /* event: sources are copied to bounce buffers; NULL: none yet */
};

static inline stepaf_request_h stepaf_op_handle(const struct stepaf_op *op)
{
    return stepaf_handle_of(op->name, op->generation);
}
/* The operation that a message is about, or NULL if it is about none of this rank's. */
struct stepaf_op *stepaf_op_find(const struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_op_response(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* A tensor of an answer has landed before the others, or the push has. */
void stepaf_op_landed(struct stepaf_peer *peer, const struct stepaf_msg *msg);
/* What has been reported of that for peer @a p's part. */
static inline uint32_t stepaf_op_has_landed(const struct stepaf_op *op, uint32_t p)
{
    return op->answers.landed[p].seq == op->seq ? op->answers.landed[p].bits : 0;
}
/* An answer that was ARRIVING is in place. */
void stepaf_op_arrived(struct stepaf_op *op, const struct stepaf_peer *peer);
void stepaf_op_release(struct stepaf_peer *peer, const struct stepaf_msg *msg);
void stepaf_op_peer_lost(struct stepaf_peer *peer);
/* A START was not sent, since its sources cannot be read. */
void stepaf_op_refused(struct stepaf_peer *peer, const struct stepaf_post *post);
/* The operation, if it still waits for the others, has waited long enough: it is complete. */
void stepaf_op_expire(struct stepaf_op *op);
stepaf_status_t stepaf_op_cancel(struct stepaf_op *op);
/* Upcall of attention ranks: 32 bits, which are an answer, as most are, or not. */
void stepaf_op_deliver_imm(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm);
typedef void stepaf_deliver_imm_fn(struct stepaf_upcalls *up, struct stepaf_link *link,
                                   uint32_t imm);
/* The function that replaces it while operations are watched, or times are measured. FFN ranks, and
 * contexts that log messages, keep theirs. */
stepaf_deliver_imm_fn *stepaf_op_deliver_imm_observed(const struct stepaf_ctx *ctx);

#endif
