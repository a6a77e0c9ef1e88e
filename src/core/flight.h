/* SPDX-License-Identifier: Apache-2.0 */
/* What is in flight: plans and operations at an attention rank, remote plans and batches at an FFN
 * rank. Included by core.h, which has what these hang on. */
#ifndef STEPAF_CORE_FLIGHT_H
#define STEPAF_CORE_FLIGHT_H

#include <stdatomic.h>

#include <stepaf/stepaf.h>

#include "transport/transport.h"

struct stepaf_ctx;
struct stepaf_key;
struct stepaf_peer;
struct stepaf_proxy;
struct stepaf_stream;

/* ---- attention side ---- */

enum stepaf_op_peer_state {
    STEPAF_OP_PEER_NONE,     /* skipped by this operation */
    STEPAF_OP_PEER_WAITING,  /* no answer yet */
    STEPAF_OP_PEER_ANSWERED, /* its tensors are here */
    STEPAF_OP_PEER_CANCELED, /* the batch was released without an answer */
    STEPAF_OP_PEER_LOST
};

/* An operation's part at one peer. */
struct stepaf_op_peer {
    struct stepaf_post post;
    struct stepaf_peer *peer;
    uint64_t answered; /* ticks; this and what comes after it: once it is ANSWERED or CANCELED */
    uint32_t queue_ns; /* what the peer reported; UINT32_MAX: nothing */
    uint32_t work_ns;
    uint64_t pull_sum; /* bytes of all answers, as planned */
    uint64_t stamp;    /* stepaf_trace_word of its answer, but for what is stamped with it */
    uint8_t state;     /* stepaf_op_peer_state */
    bool held;         /* the peer has not released the slot */
    bool odd;          /* its pull_bytes are not as planned */
};

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
    uint32_t pending;    /* parts that WAIT, also after status is known */
    uint32_t n_held;     /* peers that have not released the slot */
    uint32_t n_waiting;  /* threads that wait for it */
    int failed_peer;
    struct {
        uint64_t started;  /* ticks */
        uint64_t notified; /* ticks: when all parts had been posted */
        uint64_t waited;   /* stepaf_trace_word of a wait for it */
    } trace;
    struct stepaf_op_peer *op_peers; /* per peer */
    struct stepaf_post **posts;      /* the parts', in the same order */
    struct stepaf_xfer *xfers;       /* per peer: n_push */
    uint32_t *pull_bytes;            /* per peer: n_pull; what landed, as planned at first */
    uint32_t imm;                    /* START in 32 bits; answers differ from it only in the code */
    /* What each transport, by index, has put together for its posts as planned, or NULL. */
    void *templates[STEPAF_MAX_TRANSPORTS];
    size_t template_bytes;
    void *copied; /* event: sources are staged; NULL: none was yet */
};

struct stepaf_push {
    struct stepaf_key *key;
    void *data;
    struct stepaf_region *region;
    uint32_t bytes;
};

struct stepaf_pull {
    struct stepaf_key *key;
    uint8_t *data; /* of slot 0 */
    struct stepaf_region *region;
    uint32_t bytes;
};

/* What the trace says of a start as planned: START, if it has a stamp of its own, then the
 * tensors. The last one says NOTIFIED too. */
struct stepaf_plan_stamps {
    uint32_t n;
    struct {
        uint32_t bytes;
        uint64_t word; /* stepaf_trace_word */
    } at[STEPAF_MAX_TENSORS + 1];
};

/* Of a plan that carries a stream plan's tensors to peers through the host. */
struct stepaf_plan_proxied {
    bool is;
    bool *left_out;             /* peers that it is not for; NULL: none */
    struct stepaf_proxy *proxy; /* whose; NULL: it has let go of it */
};

struct stepaf_plan_obj {
    struct stepaf_ctx *ctx;
    uint32_t index; /* in ctx->tables.plans: the plan's number */
    uint32_t name;  /* half of its handle */
    uint32_t generation;
    uint32_t seq; /* of the next operation */
    uint8_t depth;
    uint8_t n_push;
    uint8_t n_pull; /* per peer */
    bool scatter;
    bool on_streams; /* then stream says the rest */
    bool on_gpu;     /* not on streams, and some tensor is, or has been, in GPU memory */
    bool is_small;   /* posting takes little longer than a stamp: START has that of NOTIFIED */
    struct {
        bool is;       /* made by stepaf_push_pull */
        uint64_t used; /* last: ctx->cache.uses */
    } cached;
    uint32_t usable;     /* epoch in which peers were told of it, 0: not yet */
    uint32_t imm;        /* of a START as planned, but for the sequence */
    uint32_t n_waiting;  /* threads that wait for a slot */
    uint64_t push_bytes; /* to each peer, as planned */
    struct stepaf_push push[STEPAF_MAX_TENSORS];
    struct stepaf_plan_stamps stamps;
    struct stepaf_pull *pull; /* n_peers * n_pull, peer by peer */
    struct stepaf_op *ops;    /* depth */
    struct stepaf_op *next;   /* of these, the one to start next */
    struct {
        uint32_t n_skipped;         /* peers that the last operation was not for */
        bool *skipped;              /* those */
        struct stepaf_post **posts; /* scratch */
    } partial;                      /* of a start that is not for all peers */
    struct stepaf_stream *stream;   /* made with STEPAF_PLAN_STREAM: how; else NULL */
    struct stepaf_plan_proxied proxied;
};

/* ---- FFN side ---- */

enum stepaf_batch_state {
    STEPAF_BATCH_FREE,
    STEPAF_BATCH_READY, /* complete, not yet given to the caller */
    STEPAF_BATCH_HELD
};

struct stepaf_batch_obj {
    struct stepaf_remote_plan *remote;
    struct stepaf_list any; /* in ctx->inbox.ready */
    struct stepaf_list own; /* in peer->ready */
    uint32_t index;
    uint32_t generation;
    uint32_t seq;
    uint8_t slot;
    uint8_t state; /* stepaf_batch_state */
    bool canceled;
    bool answered;
    bool retired;       /* its response's request was waited for */
    uint32_t responded; /* generation of the last response: what its request is known by */
    uint32_t born;      /* generations before this one were of other batches with its number */
    uint64_t arrived;   /* ticks */
    uint64_t handled;
    struct stepaf_post answer;
    struct stepaf_post release;
    struct stepaf_xfer *xfers; /* n_pull */
    uint32_t *bytes;           /* n_push */
    void *copied;              /* as an operation's */
};

struct stepaf_remote_plan_push {
    struct stepaf_key *key;
    uint8_t *data; /* receive buffer of slot 0 */
    uint32_t bytes;
};

struct stepaf_remote_plan_pull {
    uint64_t key_id;
    struct stepaf_key *key; /* NULL: not declared here; then without a shape */
    const struct stepaf_rmem *rmem;
    uint64_t offset; /* of slot 0 */
    uint32_t stride; /* from slot to slot */
    uint32_t bytes;
};

struct stepaf_remote_plan {
    struct stepaf_peer *peer;
    uint16_t number;
    uint8_t depth;
    uint8_t n_push;
    uint8_t n_pull;
    uint8_t n_known;            /* TENSORs that have come: complete when n_push + n_pull */
    uint8_t slot;               /* of the next operation */
    uint8_t known_pulls;        /* bit i: pull[i] has come */
    bool on_gpu;                /* something is received in GPU memory */
    bool unbound;               /* complete, but what it pushes lands where no stream plan looks */
    uint32_t seq;               /* of the next operation */
    struct stepaf_proxy *proxy; /* a stream plan takes its batches; NULL: the caller does */
    struct stepaf_remote_plan_push *push;
    struct stepaf_remote_plan_pull *pull;
    struct stepaf_batch_obj *batches; /* depth */
};

#endif
